#!/usr/bin/env bash
# Builds the images with Buildx, Docker or Podman: `make image`. Variables:
#   IMAGE_REGISTRY  what names begin with; default: registry.pelops.dev, as in the manifests
#   IMAGE_TAG       default: the version in pyproject.toml
#   IMAGES          default: operator pipeline
#   IMAGE_ENGINE    docker, buildx or podman; default: the first of these that is installed
#   PLATFORMS       for example linux/amd64,linux/arm64; default: that of this machine
#   PUSH            1: also push the images to the registry
#   SOURCE          address of the repository, for a label; default: none
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'error: %s\n' "$1" >&2; exit 1; }

find_engine() {
  local name
  for name in docker buildx podman; do
    if command -v "$name" >/dev/null; then
      printf '%s\n' "$name"
      return
    fi
  done
  fail "none of docker, buildx and podman is installed: install one of them"
}

# The commit, marked if the files that go into the images differ from it.
find_revision() {
  local commit
  commit=$(git rev-parse HEAD 2>/dev/null) || { echo unknown; return; }
  if [ -n "$(git status --porcelain -- operator packages pyproject.toml README.md LICENSE)" ]; then
    commit+=-dirty
  fi
  printf '%s\n' "$commit"
}

engine=${IMAGE_ENGINE:-$(find_engine)}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml | head -1)
registry=${IMAGE_REGISTRY:-registry.pelops.dev}
tag=${IMAGE_TAG:-$version}
push=${PUSH:-}
platforms=${PLATFORMS:-}
arguments=(
  --build-arg "VERSION=$version"
  --build-arg "REVISION=$(find_revision)"
  --build-arg "SOURCE=${SOURCE:-}"
)
[ -z "$platforms" ] || arguments+=(--platform "$platforms")

# Docker and Buildx: the images of several architectures exist only in a registry.
build_with_buildx() {
  local name=$1 result=--load
  [ -z "$push" ] || result=--push
  shift
  "$@" build --tag "$name" "$result" "${target[@]}" "${arguments[@]}" .
}

build_with_docker() {
  if docker buildx version >/dev/null 2>&1; then
    build_with_buildx "$1" docker buildx
    return
  fi
  # Docker 20 to 22 have BuildKit without the plugin. The builder before it makes every stage.
  DOCKER_BUILDKIT=1 docker build --tag "$1" "${target[@]}" "${arguments[@]}" .
  [ -z "$push" ] || docker push "$1"
}

build_with_podman() {
  case $platforms in
    *,*)
      # A manifest list of an earlier build would keep its images.
      podman manifest rm "$1" >/dev/null 2>&1 || true
      podman build --manifest "$1" "${target[@]}" "${arguments[@]}" .
      [ -z "$push" ] || podman manifest push --all "$1" "docker://$1"
      ;;
    *)
      podman build --tag "$1" "${target[@]}" "${arguments[@]}" .
      [ -z "$push" ] || podman push "$1"
      ;;
  esac
}

case $engine in
  docker | buildx)
    case $platforms in
      *,*) [ -n "$push" ] || fail "PLATFORMS names several platforms, and $engine can only push such an image: set PUSH=1, or build with podman" ;;
    esac
    ;;
  podman) ;;
  *) fail "IMAGE_ENGINE=$engine is unknown: use docker, buildx or podman" ;;
esac

for image in ${IMAGES:-operator pipeline}; do
  case $image in
    operator | pipeline) ;;
    *) fail "IMAGES names $image, which is unknown: use operator, pipeline or both" ;;
  esac
  name=$registry/pelops-$image:$tag
  target=(--target "$image")
  case $engine in
    docker) build_with_docker "$name" ;;
    buildx) build_with_buildx "$name" buildx ;;
    podman) build_with_podman "$name" ;;
  esac
  printf '%s\n' "$name"
done
