# Builds one image for the API, the workers and the migrations; see docker-compose.yml.
# Never built on a Docker engine so far; its steps were run by hand.

FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements-build.lock ./
RUN python -m pip install --no-cache-dir --require-hashes -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m hatchling build -t wheel

FROM python:3.13-slim
RUN groupadd --gid 10001 siteatlas \
    && useradd --uid 10001 --gid 10001 --home-dir /data --shell /usr/sbin/nologin siteatlas \
    && install -d -o 10001 -g 10001 -m 0700 /data
COPY requirements.lock /tmp/
RUN python -m pip install --no-cache-dir --require-hashes -r /tmp/requirements.lock
COPY scripts/check_domain_sitemaps.py /opt/siteatlas/scripts/
COPY scripts/sitemap_scheduler /opt/siteatlas/scripts/sitemap_scheduler
COPY --from=build /build/dist/*.whl /tmp/
RUN python -m pip install --no-cache-dir --no-deps /tmp/*.whl && rm /tmp/*.whl /tmp/requirements.lock

ENV PYTHONUNBUFFERED=1 \
    SITEATLAS_DATA_DIR=/data \
    SITEATLAS_LOG_FORMAT=json
VOLUME /data
WORKDIR /data
# A number, so that a cluster can see that it is not root.
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=3)"]
ENTRYPOINT ["siteatlas"]
CMD ["serve"]
