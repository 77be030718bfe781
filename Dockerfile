# Two images, both a small Python with the pinned packages, as a user without rights.
#   docker build --target operator .     the operator
#   docker build --target pipeline .     what the jobs of StreamAudits run: also PySpark and a JRE
FROM python:3.13-slim AS packages
WORKDIR /build
RUN python -m venv /opt/pelops
ENV PATH=/opt/pelops/bin:$PATH

FROM packages AS operator-packages
COPY requirements/operator.txt .
RUN pip install --no-cache-dir --require-hashes -r operator.txt \
    && pip install --no-cache-dir "setuptools==84.2.1"
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
    && pip uninstall --yes setuptools pip

FROM packages AS pipeline-packages
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/pipeline.txt .
RUN pip install --no-cache-dir --require-hashes -r pipeline.txt \
    && pip install --no-cache-dir "setuptools==84.2.1"
# What s3a:// needs, which PySpark does not bring. The version is that of Hadoop in PySpark.
# --build-arg SPARK_PACKAGES= leaves it out.
ARG SPARK_PACKAGES=org.apache.hadoop:hadoop-aws:3.5.0
COPY tools/pipeline_image/fetch_jars.py .
RUN python fetch_jars.py "$SPARK_PACKAGES"
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
    && pip uninstall --yes setuptools pip
# Under one name, whatever the version of Python.
RUN ln -s "$(python -c 'import pyspark; print(pyspark.__path__[0])')" /opt/pelops/spark

FROM python:3.13-slim AS pipeline
# Spark's scripts ask ps. Hadoop wants a name for whoever runs it, so this user has one.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 65532 pelops \
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
USER 65532:65532
ENTRYPOINT ["/opt/pelops/entrypoint.sh"]
CMD ["python", "-m", "pelops.pipeline", "--help"]

# The last one is what `docker build .` makes.
FROM python:3.13-slim AS operator
COPY --from=operator-packages /opt/pelops /opt/pelops
ENV PATH=/opt/pelops/bin:$PATH PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["pelops-operator"]
