#!/usr/bin/env bash
# Package the chart without the subcharts of Milvus and KubeRay, for clusters that have their own, or when the repositories
# of these are not reachable: tools/helm/package.sh [FOLDER]. With them: helm dependency build, helm package.
set -euo pipefail
into=$(realpath "${1:-.}")
cd "$(dirname "$0")"
chart=../../deploy/helm/hirag-dist

helm=$(command -v bin/helm || command -v helm) || { echo "there is no Helm: tools/helm.sh fetches one" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$chart" "$work/"
rm -rf "$work/hirag-dist/Chart.lock" "$work/hirag-dist/charts"
sed -i '/^dependencies:/,$d' "$work/hirag-dist/Chart.yaml"
"$helm" package "$work/hirag-dist" --destination "$into"
