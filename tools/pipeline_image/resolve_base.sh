#!/usr/bin/env bash
# Prints `image=NAME@DIGEST` for the base image that a Dockerfile names, for our architectures.
#
# A digest in the Dockerfile is kept: the registry must still have it. Without one, the digest of the
# tag is asked for. What the registry returns under the digest must have that SHA-256.
set -euo pipefail
fail() { printf 'error: %s\n' "$1" >&2; exit 1; }

name=$(sed -n 's/^ARG PYTHON_IMAGE=//p' "${1:?the Dockerfile}")
[ -n "$name" ] || fail "$1 names no PYTHON_IMAGE"
case $name in
  *@sha256:*) digest=${name##*@} ;;
  *)
    digest=$(docker buildx imagetools inspect "$name" --format '{{json .Manifest}}' | jq -er .digest)
    printf 'warning: %s names %s without a digest; today it is %s\n' "$1" "$name" "$digest" >&2
    ;;
esac
index=$(mktemp)
trap 'rm -f "$index"' EXIT
docker buildx imagetools inspect --raw "${name%@*}@$digest" >"$index"
read -r found _ < <(sha256sum "$index")
[ "sha256:$found" = "$digest" ] || fail "the registry returned sha256:$found for $name@$digest"
for architecture in amd64 arm64; do
  jq -e --arg a "$architecture" 'any(.manifests[]; .platform.architecture == $a)' "$index" >/dev/null ||
    fail "$name@$digest has no image for $architecture"
done
printf 'image=%s@%s\n' "${name%@*}" "$digest"
