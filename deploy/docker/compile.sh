# Compile the application's numba functions into /opt/hirag/numba, not at each start of a pod: compile.sh SOURCE_DATE_EPOCH
# The cache is keyed by the kind of processor, the features and the times of the source files.
set -eu
NUMBA_CACHE_DIR=/opt/hirag/numba NUMBA_CPU_FEATURES="" /opt/hirag/bin/python /tmp/warm.py /tmp/warm
rm -rf /tmp/warm
find /opt/hirag/numba -exec touch --no-dereference --date="@$1" {} +
