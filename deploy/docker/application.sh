# Install the wheel of /wheels into /opt/hirag, and collect the files that it adds in /application:
# application.sh ARCHITECTURE SOURCE_DATE_EPOCH
set -eu
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
packages=$(echo /opt/hirag/lib/python3.*/site-packages)
pip --python /opt/hirag/bin/python install --no-deps --no-compile /wheels/*.whl
/opt/hirag/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash "$packages/hirag_dist"
/opt/hirag/bin/python /tmp/sbom.py >/opt/hirag/sbom.cdx.json

# numba finds compiled code by the kind of processor: x86-64-v3 is any amd64 since about 2013 (AVX2).
case "$1" in
amd64) processor=x86-64-v3 ;;
arm64) processor=generic ;;
*)
    echo "application.sh: no kind of processor is chosen for the architecture '$1'" >&2
    exit 1
    ;;
esac
echo "import os; os.environ.setdefault('NUMBA_CPU_NAME', '$processor')" >"$packages/hirag_processor.pth"

mkdir -p /application
cp --archive --parents /opt/hirag/bin/hirag-dist "$packages"/hirag_* /opt/hirag/sbom.cdx.json /application
find /application "$packages/hirag_dist" -exec touch --no-dereference --date="@$2" {} +
