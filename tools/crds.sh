#!/usr/bin/env bash
# Fetch the definitions of KubeRay's and the Gateway API's resources, at fixed commits, into tools/helm/crds. The tests of
# the chart check its objects against them with HIRAG_CRDS=tools/helm/crds. Apache-2.0, by the Kubernetes authors
# and the KubeRay authors; they are not part of this repository.
set -euo pipefail
cd "$(dirname "$0")/helm"
mkdir -p crds

fetch() { # REPOSITORY COMMIT FOLDER FILE SHA256
    curl --fail --silent --show-error --location --output "crds/$4" "https://raw.githubusercontent.com/$1/$2/$3/$4"
    echo "$5  crds/$4" | sha256sum --check --quiet
}
fetch ray-project/kuberay 59d663aeec13760646da3db9c1cf8cfe883e30b7 ray-operator/config/crd/bases ray.io_rayjobs.yaml \
    01a5cf3b17c1769fda44af7e82debcd98722f0c27b9ab84d084681c6649121f5 # v1.7.0
gateway=(kubernetes-sigs/gateway-api 8bb74df00e56ec8f944d48c25e6c1c9c2f6848e3 config/crd/standard) # v1.6.1
fetch "${gateway[@]}" gateway.networking.k8s.io_grpcroutes.yaml \
    53a8d029da8f07e55d3fa58a5cf6de5950dab19fbb8d6a8082fb5e51ca5ef6fc
fetch "${gateway[@]}" gateway.networking.k8s.io_httproutes.yaml \
    a424a0d6c953b162e71d1d97bb7e75012d8f1ac264e7274f2763d1b96ab39852
