#!/usr/bin/env bash
# Spark on Kubernetes starts its pods with the word `driver` or `executor`, and tells the rest in
# variables, as for Spark's own image. Anything else is a command of ours.
set -euo pipefail

classes="${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$SPARK_HOME/jars/*"
temporary="-Djava.io.tmpdir=${TMPDIR:-/tmp}" # /tmp cannot be written to where the root is read-only

run_driver() {
  export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} $temporary"
  exec spark-submit --deploy-mode client \
    --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS:-0.0.0.0}" "$@"
}

run_executor() {
  local options=() name
  # In the order of their numbers, as Spark gave them.
  for name in $(compgen -A variable SPARK_JAVA_OPT_ | sort -t_ -k4 -n); do
    options+=("${!name}")
  done
  exec java "$temporary" "${options[@]}" \
    "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "$classes" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME" "$@"
}

case "${1:-}" in
  driver) run_driver "${@:2}" ;;
  executor) run_executor "${@:2}" ;;
  *) exec "$@" ;;
esac
