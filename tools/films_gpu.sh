#!/usr/bin/env bash
# Film and train on a machine that has a GPU and torch, NumPy and timm, but none of ballcast's other dependencies.
#
#   tools/films_gpu.sh start films.tar.xz WORK SECONDS [START]   films and trains in the background; START: a state.pt
#   tools/films_gpu.sh wait WORK SECONDS OUT                     waits, shows the log, and copies the newest state to OUT
#
# Both processes outlive the shell, so that several `wait`s in a row can follow one training. `wait` splits state.pt
# into pieces of 15 MB (`cat OUT/state_* > state.pt`). FILMERS: matches at a time; by default two cores are left to training.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

start() {
  archive=$1; work=$2; seconds=$3; start=${4:-}
  mkdir -p "$work/films" "$work/run"
  rm -f "$work"/run/{done,ended}
  tar xJf "$archive" -C "$work"
  jobs=${FILMERS:-$(($(nproc) - 2))}
  # A short film each first, so that training can begin within half a minute.
  setsid bash -c "
    cd '$work'; mv films archive; mkdir films
    nice -n 5 archive/film films 10101-$((10100 + jobs)) --minutes 1.3 --jobs $jobs
    nice -n 5 archive/film films ${SEEDS:-6001-6012 8001-8003 6013-6999} --jobs $jobs
  " > "$work/films.log" 2>&1 < /dev/null &
  setsid bash -c "
    cd '$here'; export PYTHONPATH=src:. PYTHONUNBUFFERED=1 OMP_NUM_THREADS=4 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    end=\$((\$(date +%s) + $seconds)); state='$start'
    for room in 120 90 60; do  # after a failure, continue with fewer films in the GPU's memory
      left=\$((end - \$(date +%s))); [ \$left -gt 60 ] || break
      [ -e '$work/run/state.pt' ] && state='$work/run/state.pt'
      python3 -m tools.bare tools.train_films '$work/films' '$work/run' --seconds \$left --room \$room --least ${LEAST:-12} \${state:+--start \$state} && break
    done
    touch '$work/run/ended'
  " > "$work/train.log" 2>&1 < /dev/null &
}

keep() {
  cp "$1/run/log.txt" "$1/run/ema.pt" "$2/" 2> /dev/null
  tail -c 20000 "$1/films.log" > "$2/films.txt"
  [ ! -e "$1/run/state.pt" ] || split -b 15m -d "$1/run/state.pt" "$2/state_"
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
  tail -n 3 "$work/films.log"
  [ ! -e "$work/run/ended" ] || [ -e "$work/run/done" ]
}

case ${1:-} in
  start) shift; start "$@" ;;
  wait) shift; wait_for "$@" ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
