# One image for the manager and its listeners: runs as any user, writes nowhere.
#   docker build -t arc-controller:0.14.0 .
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY arc_controller arc_controller
# A virtual environment without pip; compiled, since the running containers cannot write .pyc files.
RUN python -m venv --without-pip /opt/arc \
    && pip --python /opt/arc/bin/python install --no-cache-dir --compile '.[azure]'

FROM python:${PYTHON}-slim
COPY --from=build /opt/arc /opt/arc
RUN ln -s /opt/arc/bin/manager /manager \
    && ln -s /opt/arc/bin/ghalistener /ghalistener
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["/manager"]
