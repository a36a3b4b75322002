# The image that `trek cluster render kuberay` needs: Trek with Ray, for the head and the workers alike.
#   docker build -t registry.example/trek:dev .
FROM python:3.11.11-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11.11-slim-bookworm
ARG EXTRAS=ray,ps,s3
# KubeRay asks pods for their health with wget.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(ls /wheels/trek_ml-*.whl)[$EXTRAS]" && rm -rf /wheels
RUN useradd --create-home --uid 1000 trek
ENV RAY_USAGE_STATS_ENABLED=0 PYTHONUNBUFFERED=1
USER 1000
WORKDIR /home/trek
CMD ["trek", "--help"]
