# syntax=docker/dockerfile:1
#
#   docker build -t simba-resp .
#   docker run -p 127.0.0.1:7379:7379 -v simba:/var/lib/simba-resp -e SIMBA_REQUIREPASS=… simba-resp
#
# The image has the server and certificates, no shell. make package runs the same root in a chroot.

FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
COPY . .
ARG TARGETOS TARGETARCH
# Without the v. Empty: a development build.
ARG VERSION=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
      -ldflags="-s -w -X main.release=$VERSION" -o /out/simba-resp ./cmd/simba-resp \
    && deploy/docker/rootfs /out/simba-resp /etc/ssl/certs/ca-certificates.crt /rootfs

FROM scratch
COPY --from=build /rootfs /
# COPY gives the folder to root without --chown.
COPY --from=build --chown=65532:65532 /rootfs/var/lib/simba-resp /var/lib/simba-resp
USER 65532:65532
WORKDIR /var/lib/simba-resp
# Outside loopback the server needs a password or users, and refuses to start without. The health
# check asks the HTTP listener inside the container. To scrape metrics, open it: 0.0.0.0:7380.
ENV SIMBA_ADDR=0.0.0.0:7379 \
    SIMBA_HTTP_ADDR=127.0.0.1:7380 \
    SIMBA_DATA_DIR=/var/lib/simba-resp/data
EXPOSE 7379
VOLUME /var/lib/simba-resp
STOPSIGNAL SIGTERM
# The command has a timeout of 5 s. The start restores all leases, which may take ten minutes.
HEALTHCHECK --interval=10s --timeout=6s --start-period=10m CMD ["/usr/bin/simba-resp", "health"]
ENTRYPOINT ["/usr/bin/simba-resp"]
CMD ["serve"]
