# Install the packages of a lock into /opt/hirag: packages.sh LOCK
# Files and times depend on the lock alone. Without pip, since nothing is installed in a running container, and without
# the packages' own tests. Unchecked bytecode: the files do not change, so Python does not have to compare their times.
set -eu
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
python -m venv --without-pip /opt/hirag
pip --python /opt/hirag/bin/python install --no-deps --no-compile --only-binary :all: --require-hashes -r "$1"
for name in numba numpy pandas pyarrow; do
    find /opt/hirag/lib/python3.*/site-packages/$name -depth -type d -name tests -exec rm -rf {} +
done
/opt/hirag/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/hirag/lib
find /opt/hirag -exec touch --no-dereference --date=@315532800 {} +
