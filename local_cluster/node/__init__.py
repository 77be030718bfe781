"""A node that runs pods as plain processes of this machine, beside a real control plane.

    python -m local_cluster.node --kubeconfig PATH --name NAME --state DIR [--light]
                                 [--bin-path DIR ...]

What differs from a kubelet, because there are no images, namespaces or cgroups:

* The container's command is run as it stands; the image is only shown. A container without a
  command waits with the reason ImageHasNoCommand.
* The environment is that of the pod, plus PATH (the directory of this Python and each --bin-path
  first), HOME, LANG, TMPDIR, HOSTNAME and KUBERNETES_SERVICE_HOST/PORT. Nothing is inherited.
* Volumes are directories below the state directory. A value of `env`, `command` or `args` that
  begins with a mountPath (alone or followed by "/", in arguments also after "--option=") is
  rewritten to the real directory.
* A container that mounts the ServiceAccount token gets KUBECONFIG, of exactly that token and CA.
* Each pod has its own address in 127.0.0.0/8: bind to it (status.podIP) and not to 0.0.0.0.
* Limits and securityContext have no effect, so OOMKilled is never reported. gRPC probes, persistent
  volumes, Events and `kubectl exec` are not there.
* The restart back-off is the kubelet's, scaled: at once, then 1, 2, 4 ... 30 s; forgotten after
  60 s of running.

Logs are DIR/pods/NAMESPACE_NAME_UID/CONTAINER.log, all runs in one file, kept for the last 200
pods; `kubectl logs` shows the current run, `--previous` the one before;
--since and --timestamps have no effect.

Signals: SIGUSR1 makes the node fail (it reports nothing; the processes go on), SIGUSR2 makes it
recover, SIGTERM and SIGINT end it with all its processes. If it is killed they are killed, too.
"""
