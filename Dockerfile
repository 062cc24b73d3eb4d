# ballcast as a server: a small image for the CPU (the default), or one with torch for NVIDIA GPUs.
#
#   docker build -t ballcast .
#   docker build -t ballcast:gpu --build-arg DEVICE=gpu .
#
#   docker run --rm -p 127.0.0.1:8000:8000 -e BALLCAST_TOKEN=a-secret-of-16-characters -v ballcast:/data ballcast
#   docker run --rm --gpus all -p 127.0.0.1:8000:8000 -v ballcast:/data ballcast:gpu
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" ballcast predict match.mp4 --overlay seen.mp4
#
# compose.yaml runs the same. The server requires a token of at least 16 characters; without BALLCAST_TOKEN it makes one
# and prints it in the log.
#
# Packages are those of uv.lock, each compared with its hash. To fix the base image, too, give its digest:
#   docker build -t ballcast --build-arg BASE=python:3.13-slim@sha256:… .
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
ARG DEVICE=cpu
# More extras, such as EXTRAS=events, which adds 300 MB.
ARG EXTRAS=
WORKDIR /build
COPY pyproject.toml uv.lock README.md LICENSE NOTICE deploy/uv.txt ./
COPY src ./src
RUN pip install --no-cache-dir --require-hashes --requirement uv.txt
# Bytecode is made at the first start, so the image holds it only once.
RUN case "$DEVICE" in \
      cpu) extras="server${EXTRAS:+,$EXTRAS}" ;; \
      gpu) extras="server,train${EXTRAS:+,$EXTRAS}" ;; \
      *) echo "DEVICE is cpu or gpu, not $DEVICE" >&2; exit 1 ;; \
    esac; \
    UV_PROJECT_ENVIRONMENT=/opt/ballcast uv sync --frozen --no-editable --no-cache --no-managed-python \
      $(printf -- '--extra %s ' $(echo "$extras" | tr , ' '))

FROM ${BASE}
ARG DEVICE=cpu
LABEL org.opencontainers.image.title="ballcast" \
      org.opencontainers.image.description="Anticipates football: from 30 s of broadcast video, the ball actions of the next 5 s" \
      org.opencontainers.image.source="https://github.com/ballcast/ballcast" \
      org.opencontainers.image.licenses="Apache-2.0"
# On a GPU, kernels are compiled when they are first used, and that takes a C compiler.
RUN if [ "$DEVICE" = gpu ]; then \
      apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*; \
    fi
# An unprivileged user; what it writes is in /data, its home: uploads, jobs, and downloads from the hub.
RUN useradd --uid 10001 --user-group --create-home --home-dir /data --shell /usr/sbin/nologin ballcast
COPY --from=build /opt/ballcast /opt/ballcast
ENV PATH=/opt/ballcast/bin:$PATH PYTHONUNBUFFERED=1 HOME=/data HF_HOME=/data/.cache/huggingface
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/api/health', timeout=4)"]
# As process 1 it would not hear SIGTERM, except while it serves; Ctrl-C every command understands.
STOPSIGNAL SIGINT
ENTRYPOINT ["ballcast"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000", "--data", "/data/served"]
