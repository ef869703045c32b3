# docker build -t rlcpu . && docker run --rm -it rlcpu train CartPole-v1
# The kernels of CartPole-v1 are compiled while the image is built; those of other environments at their
# first use. They are made for the processor that builds: build where you run.
FROM python:3.13-slim

WORKDIR /src
COPY pyproject.toml setup.cfg README.md LICENSE ./
COPY rlcpu rlcpu
RUN pip install --no-cache-dir ".[plot,render]"

RUN useradd --create-home user
USER user
WORKDIR /home/user
ENV NUMBA_CACHE_DIR=/home/user/.cache/numba
RUN rlcpu warmup CartPole-v1 --dtype float32 --no-progress

ENTRYPOINT ["rlcpu"]
CMD ["--help"]
