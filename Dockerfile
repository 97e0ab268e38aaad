# Siding's three programs in an image that has nothing else:
#
#   docker build -t siding .
#   docker run --rm siding --version
#
# docs/guides/deployment.md has the rest. The go command reads the release and the commit from .git.
FROM golang:1.26-bookworm AS build
WORKDIR /siding/src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# Without cgo the programs need no libraries.
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o ../bin/ ./cmd/worker ./cmd/enqueue ./cmd/lockctl
RUN mkdir -p ../data

FROM scratch
# The authorities that redis.tls trusts unless redis.tls_ca_file names others.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build --chown=65532:65532 /siding/data /var/lib/siding
COPY --from=build /siding/bin/ /usr/local/bin/
ENV PATH=/usr/local/bin TMPDIR=/var/lib/siding
# The worker writes nothing else: the ledger of the demo shop, and temporary files.
WORKDIR /var/lib/siding
# A number, as Kubernetes does not look up names.
USER 65532:65532
EXPOSE 8080
# Whether the process lives. A worker whose Redis is away is not ready, and need not be started again.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["worker", "--probe", "healthz"]
ENTRYPOINT ["worker"]
