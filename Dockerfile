# The operator's image: a small Python, the pinned packages, nothing else. Runs as nobody.
FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements/operator.txt .
RUN python -m venv /opt/pelops \
    && /opt/pelops/bin/pip install --no-cache-dir --require-hashes -r operator.txt \
    && /opt/pelops/bin/pip install --no-cache-dir "setuptools==84.2.1"
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN /opt/pelops/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/pelops/bin/pip uninstall --yes setuptools pip

FROM python:3.13-slim
COPY --from=build /opt/pelops /opt/pelops
ENV PATH=/opt/pelops/bin:$PATH PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["pelops-operator"]
