# Made by `cargo xtask bundle`. In this folder: podman build -f catalog.Dockerfile -t IMAGE .
FROM quay.io/operator-framework/opm:v1.55.0

LABEL operators.operatorframework.io.index.configs.v1=/configs

COPY tholepin-operator /configs/tholepin-operator
COPY tholepin-hardware-operator /configs/tholepin-hardware-operator
RUN ["/bin/opm", "serve", "/configs", "--cache-dir=/tmp/cache", "--cache-only"]

ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs", "--cache-dir=/tmp/cache"]
