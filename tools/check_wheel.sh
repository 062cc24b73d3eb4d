#!/usr/bin/env bash
# Does what was built work where the repository is not? Builds sdist and wheel, and for each Python given installs the
# wheel into an environment of its own, away from the repository, and runs the demo there without a network.
#
#   tools/check_wheel.sh [PYTHON …]        default: python3; about 6 GB of disk for each, removed at the end
#   KEEP=/tmp/envs tools/check_wheel.sh    keeps the environments there
set -euo pipefail
cd "$(dirname "$0")/.."
pythons=("${@:-python3}")
place=${KEEP:-$(mktemp -d)}
[ -n "${KEEP:-}" ] || trap 'rm -rf "$place"' EXIT
mkdir -p "$place"
place=$(cd "$place" && pwd)

# Without a network of its own not even the local machine can be reached, so nothing can slip through a proxy.
if unshare --net true 2>/dev/null; then offline=(unshare --net)
elif unshare --map-root-user --net true 2>/dev/null; then offline=(unshare --map-root-user --net)
else echo "this machine lets nobody leave its network: the demo would prove nothing" >&2; exit 1
fi

"${BUILD:-.venv/bin/python}" -m build --outdir "$place/dist" . >"$place/build.log" 2>&1 || { cat "$place/build.log"; exit 1; }
wheel=$(ls -t "$place"/dist/*.whl | head -1)
echo "$(basename "$wheel"): $(stat -c %s "$wheel") bytes"

for python in "${pythons[@]}"; do
  name=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
  env="$place/$name" demo="$place/$name-demo"
  rm -rf "$demo" && mkdir -p "$demo"
  "$python" -m venv "$env"
  began=$SECONDS
  "$env/bin/pip" install --quiet --disable-pip-version-check "$wheel"
  "$env/bin/pip" check
  echo "$name: installed in $((SECONDS - began)) s, $(du -sm "$env" | cut -f1) MB"
  began=$SECONDS
  (
    cd "$demo"
    unset PYTHONPATH
    "${offline[@]}" "$env/bin/ballcast" --version
    "${offline[@]}" "$env/bin/ballcast" doctor >doctor.txt || { cat doctor.txt; exit 1; }
    output=$("${offline[@]}" "$env/bin/ballcast" train paper data.features=nowhere 2>&1) && exit 1
    case $output in *"nowhere"*) ;; *) echo "the recipe 'paper' is not found: $output"; exit 1 ;; esac
    "${offline[@]}" "$env/bin/ballcast" demo --no-open >demo.txt 2>&1 || { tail -30 demo.txt; exit 1; }
  )
  echo "$name: the demo passed offline in $((SECONDS - began)) s"
done
