# The image of tpuwatch, for deploy/gke or for a container beside a job. Build it from the repository: docker build -t tpuwatch .
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
RUN python -m venv /opt/tpuwatch \
    && /opt/tpuwatch/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY config.example.toml ./
COPY docs docs
COPY systemd systemd
COPY tpuwatch tpuwatch
RUN /opt/tpuwatch/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/tpuwatch/bin/pip uninstall --yes pip hatchling

FROM python:3.12-slim-bookworm
COPY --from=build /opt/tpuwatch /opt/tpuwatch
# A user without a name on the host; deploy/gke gives it the capability that reading others' logs takes.
RUN useradd --system --uid 9478 --home-dir /var/lib/tpuwatch --create-home tpuwatch
ENV PATH=/opt/tpuwatch/bin:$PATH
USER 9478:9478
VOLUME /var/lib/tpuwatch
EXPOSE 9478
ENTRYPOINT ["tpuwatch"]
CMD ["run"]
