# a consumer group, and workers that Pelops runs while there is work
kubectl get scg
seq 600 | sed 's/^/XADD orders:events * number /' | redis-cli -u $REDIS_URL > /dev/null
@sleep 4; kubectl wait --for=condition=Ready pod -l pelops.dev/stream-consumer-group=order-processing --timeout=60s
kubectl get scg
kubectl get pods
# a worker dies while it holds entries
kubectl delete --now $(kubectl get pods -o name | head -1)
@sleep 2
kubectl get events --field-selector reason=Requeued -o custom-columns=REASON:.reason,MESSAGE:.message
@sleep 30; kubectl wait scg/order-processing --for=jsonpath="{.status.replicas}"=0 --timeout=150s; sleep 5
# nothing was lost: 599 orders are shipped, one is a dead letter; idle workers are removed after a minute
kubectl get scg
