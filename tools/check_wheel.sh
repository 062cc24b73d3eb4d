#!/usr/bin/env bash
# Does what was built work where the repository is not? Builds sdist and wheel, and for each Python given installs the
# wheel into an environment of its own, away from the repository, and runs the demo, predict and live there without a
# network; with EXTRAS=server, serve too. The light installation, in which torch cannot be imported; with EXTRAS, that one.
#
#   tools/check_wheel.sh [PYTHON …]                 default: python3; about half a GB of disk for each, removed at the end
#   EXTRAS=server,train tools/check_wheel.sh [PYTHON …]    with torch: about 6 GB for each; the demo also trains
#   KEEP=/tmp/envs tools/check_wheel.sh             keeps the environments there
set -euo pipefail
cd "$(dirname "$0")/.."
pythons=("${@:-python3}")
extras=${EXTRAS:-}
place=${KEEP:-$(mktemp -d)}
[ -n "${KEEP:-}" ] || trap 'rm -rf "$place"' EXIT
mkdir -p "$place"
place=$(cd "$place" && pwd)
excerpt=$PWD/src/ballcast/samples/test/excerpt.mp4
cut='import av, sys
with av.open(sys.argv[1]) as source, av.open(sys.argv[2], "w") as target:
    stream = target.add_stream_from_template(source.streams.video[0])
    for packet in source.demux(video=0):
        if packet.dts is not None and packet.dts * packet.time_base < 7:
            packet.stream = stream
            target.mux(packet)'

# Without a network of its own not even the local machine can be reached, so nothing can slip through a proxy.
if unshare --net true 2>/dev/null; then offline=(unshare --net)
elif unshare --map-root-user --net true 2>/dev/null; then offline=(unshare --map-root-user --net)
else echo "this machine lets nobody leave its network: the demo would prove nothing" >&2; exit 1
fi

"${BUILD:-.venv/bin/python}" -m build --outdir "$place/dist" . >"$place/build.log" 2>&1 || { cat "$place/build.log"; exit 1; }
wheel=$(ls -t "$place"/dist/*.whl | head -1)
echo "$(basename "$wheel"): $(stat -c %s "$wheel") bytes"

for python in "${pythons[@]}"; do
  name=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')${extras:+-$extras}
  env="$place/$name" work="$place/$name-work"
  rm -rf "$work" && mkdir -p "$work"
  "$python" -m venv "$env"
  began=$SECONDS
  "$env/bin/pip" install --quiet --disable-pip-version-check "$wheel${extras:+[$extras]}"
  "$env/bin/pip" check
  echo "$name: installed in $((SECONDS - began)) s, $(du -sm "$env" | cut -f1) MB"
  if [[ $extras != *train* ]] && "$env/bin/python" -c 'import torch' 2>/dev/null; then echo "torch is in the light installation"; exit 1; fi
  (
    cd "$work"
    unset PYTHONPATH
    ballcast=("${offline[@]}" "$env/bin/ballcast")
    timed() { local began=$SECONDS; "$@" || exit 1; echo "$name: ${label:-$1} in $((SECONDS - began)) s"; }
    "${ballcast[@]}" --version
    "${ballcast[@]}" doctor >doctor.txt || { cat doctor.txt; exit 1; }
    output=$("${ballcast[@]}" train paper data.features=nowhere 2>&1) && exit 1
    case $extras:$output in
      *train*:*nowhere*) ;;
      *:*torch*"[train]"*) ;;
      *) echo "unexpected: $output"; exit 1 ;;
    esac
    label="demo offline" timed "${ballcast[@]}" demo --no-open $([[ $extras = *train* ]] && echo --train) >demo.txt 2>&1 || { tail -30 demo.txt; exit 1; }
    tail -1 demo.txt
    "$env/bin/python" -c "$cut" "$excerpt" short.mp4
    label="predict offline" timed "${ballcast[@]}" predict short.mp4
    label="live offline" timed "${ballcast[@]}" live short.mp4 --speed 0 --json live.jsonl
    test -s live.jsonl
    if [[ $extras != *server* ]]; then
      output=$("${ballcast[@]}" serve 2>&1) && exit 1
      [[ $output = *"[server]"* ]] || { echo "unexpected: $output"; exit 1; }
      exit 0
    fi
    label="serve offline" timed "${offline[@]}" bash -c '
      ip link set lo up 2>/dev/null || true
      "$1" serve --port 8765 >serve.txt 2>&1 & server=$!
      trap "kill -INT $server; wait $server" EXIT
      for _ in $(seq 120); do
        "$2" -c "from urllib.request import urlopen; urlopen(\"http://127.0.0.1:8765/api/health\", timeout=2)" 2>/dev/null && exit 0
        sleep 0.5
      done
      cat serve.txt; exit 1' serve "$env/bin/ballcast" "$env/bin/python"
  )
done
