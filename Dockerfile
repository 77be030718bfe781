# Two images, both a small Python with the pinned packages, as a user without rights. Their root file
# system can be read-only. `make image` builds them with Docker, Buildx or Podman:
#   --target operator     the operator, and the worker SDK
#   --target pipeline     what the jobs of StreamAudits run: also PySpark and a JRE
#
# Everything that goes in has a hash that is known before: Python packages (requirements/*.txt), jars
# (requirements/jars.sha256), Debian packages (requirements/debian-*.sha256). docs/architecture/supply-chain.md.
# The base image is given by the digest of its index of architectures. The workflow that publishes
# images verifies that the registry returns these bytes; another base: --build-arg PYTHON_IMAGE=...
ARG PYTHON_IMAGE=python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285
# Of this release; compared with what the programs in the image print.
ARG VERSION=0.1.0
# The commit. The context has no .git, so whoever builds passes it: tools/build_images.sh.
ARG REVISION=unknown
# The address of the repository, for scanners and registries.
ARG SOURCE=
FROM ${PYTHON_IMAGE} AS python

FROM python AS packages
WORKDIR /build
RUN python -m venv /opt/pelops
ENV PATH=/opt/pelops/bin:$PATH
COPY requirements/build.txt .
RUN pip install --no-cache-dir --only-binary :all: --require-hashes -r build.txt

FROM packages AS wheel
COPY pyproject.toml README.md LICENSE ./
COPY packages packages
COPY operator operator
ARG REVISION
RUN printf '%s\n' "$REVISION" > operator/pelops/REVISION \
    && pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheel \
        . ./packages/pelops-core ./packages/pyspark-redis-streams

FROM packages AS operator-packages
COPY requirements/operator.txt .
RUN pip install --no-cache-dir --only-binary :all: --require-hashes -r operator.txt
COPY --from=wheel /wheel /wheel
ARG VERSION
ARG REVISION
# Of the Kubernetes client, the operator uses connections and not the classes of each API.
RUN pip install --no-cache-dir --no-deps --no-index /wheel/pelops_*.whl \
    && pip uninstall --yes setuptools pip \
    && rm -r /opt/pelops/lib/python3*/site-packages/kubernetes/client/api \
        /opt/pelops/lib/python3*/site-packages/kubernetes/aio/client/api \
    && test "$(pelops-operator --version)" = "pelops-operator $VERSION (revision $REVISION)"

# A JRE from Debian, which fixes its vulnerabilities; procps, since Spark's scripts call ps. Links to
# manual pages need their directory, which slim images lack. TARGETARCH is set by BuildKit.
FROM python AS java
ARG TARGETARCH
COPY requirements/debian-${TARGETARCH}.sha256 tools/pipeline_image/verify_files.py /build/
RUN apt-get update \
    && mkdir -p /usr/share/man/man1 \
    && apt-get install --yes --no-install-recommends --download-only openjdk-21-jre-headless procps \
    && python /build/verify_files.py /build/debian-*.sha256 /var/cache/apt/archives '*.deb' \
    && apt-get install --yes --no-install-recommends --no-download openjdk-21-jre-headless procps \
    && rm -rf /build /var/lib/apt/lists/* /var/cache/apt/archives/*.deb

FROM java AS spark
WORKDIR /build
COPY --from=packages /opt/pelops /opt/pelops
ENV PATH=/opt/pelops/bin:$PATH
COPY requirements/pipeline.txt .
# PySpark alone has no wheel; it is built with the setuptools of build.txt.
RUN pip install --no-cache-dir --only-binary :all: --no-binary pyspark --no-build-isolation \
        --require-hashes -r pipeline.txt
# Under one name, whatever the version of Python.
RUN ln -s "$(python -c 'import pyspark; print(pyspark.__path__[0])')" /opt/pelops/spark

# What s3a:// needs, and Delta Lake, which PySpark does not bring. The versions are those for the
# Hadoop in PySpark, and for PySpark. The resolver loads what it fetches, so nothing leaves this stage
# but the jars, and the next one compares them. --build-arg SPARK_PACKAGES= leaves them out.
FROM spark AS jars
ARG SPARK_PACKAGES=org.apache.hadoop:hadoop-aws:3.5.0,io.delta:delta-spark_4.2_2.13:4.4.0
COPY tools/pipeline_image/fetch_jars.py .
RUN mkdir /jars && python fetch_jars.py "$SPARK_PACKAGES" /jars

FROM spark AS pipeline-packages
ARG SPARK_PACKAGES=org.apache.hadoop:hadoop-aws:3.5.0,io.delta:delta-spark_4.2_2.13:4.4.0
COPY requirements/jars.sha256 tools/pipeline_image/verify_files.py ./
COPY --from=jars /jars jars
RUN if [ -n "$SPARK_PACKAGES" ]; then \
        python verify_files.py --complete jars.sha256 jars '*.jar' && cp jars/*.jar /opt/pelops/spark/jars/; \
    fi
COPY --from=wheel /wheel /wheel
ARG VERSION
ARG REVISION
RUN pip install --no-cache-dir --no-deps --no-index /wheel/*.whl \
    && pip uninstall --yes setuptools pip \
    && test "$(python -m pelops.pipeline --version)" = "pelops.pipeline $VERSION (revision $REVISION)"

FROM java AS pipeline
# Hadoop wants a name for whoever runs it, so this user has one.
RUN groupadd --gid 65532 pelops \
    && useradd --uid 65532 --gid 65532 --home-dir /var/lib/pelops --create-home --shell /usr/sbin/nologin pelops
COPY --from=pipeline-packages /opt/pelops /opt/pelops
COPY tools/pipeline_image/run_pipeline.py tools/pipeline_image/entrypoint.sh /opt/pelops/
# /var/lib/pelops is the one directory that may be written to: a volume of the job is mounted there.
ENV PATH=/opt/pelops/bin:/opt/pelops/spark/bin:$PATH \
    SPARK_HOME=/opt/pelops/spark \
    PYSPARK_PYTHON=/opt/pelops/bin/python \
    PYTHONUNBUFFERED=1 \
    TMPDIR=/var/lib/pelops
WORKDIR /var/lib/pelops
ARG PYTHON_IMAGE
ARG VERSION
ARG REVISION
ARG SOURCE
LABEL org.opencontainers.image.title="pelops-pipeline" \
      org.opencontainers.image.description="Jobs of StreamAudits: Pelops with PySpark and a JRE" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="Pelops maintainers" \
      org.opencontainers.image.base.name="$PYTHON_IMAGE"
USER 65532:65532
ENTRYPOINT ["/opt/pelops/entrypoint.sh"]
CMD ["python", "-m", "pelops.pipeline", "--help"]

# The last one is what `docker build .` makes.
FROM python AS operator
COPY --from=operator-packages /opt/pelops /opt/pelops
ENV PATH=/opt/pelops/bin:$PATH PYTHONUNBUFFERED=1
ARG PYTHON_IMAGE
ARG VERSION
ARG REVISION
ARG SOURCE
LABEL org.opencontainers.image.title="pelops-operator" \
      org.opencontainers.image.description="A Kubernetes operator that manages Redis Streams consumer groups" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="Pelops maintainers" \
      org.opencontainers.image.base.name="$PYTHON_IMAGE"
USER 65532:65532
ENTRYPOINT ["pelops-operator"]
