# A small image with one static binary. The binary runs in any other image too:
#   COPY --from=ctrlrun /usr/local/bin/ctrlrun /usr/local/bin/ctrlrun
FROM rust:1.95-alpine AS build
# SQLite and ring are C.
RUN apk add --no-cache gcc musl-dev make
WORKDIR /src
COPY . .
RUN cargo build --locked --release --bin ctrlrun

FROM alpine:3.22
# For servers whose certificates are to be checked.
RUN apk add --no-cache ca-certificates \
    && adduser -D -H -u 65532 ctrlrun \
    && install -d -o 65532 -g 65532 -m 700 /var/lib/ctrlrun
COPY --from=build /src/target/release/ctrlrun /usr/local/bin/ctrlrun
# The default store and spool, which must outlive the container.
ENV XDG_STATE_HOME=/var/lib
VOLUME /var/lib/ctrlrun
USER 65532:65532
# It collects what its command leaves behind, as PID 1 must: no other init is needed.
ENTRYPOINT ["ctrlrun"]
