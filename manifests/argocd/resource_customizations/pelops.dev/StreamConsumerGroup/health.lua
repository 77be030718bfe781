-- Health of StreamConsumerGroup, StreamAudit and StreamRedrive for Argo CD; all have the same script.
-- ../../../argocd-cm.yaml has it for the ConfigMap argocd-cm.
-- The kinds follow kstatus: Ready, Reconciling, Stalled and status.observedGeneration.
local health = { status = "Progressing", message = "Waiting for the Pelops operator" }
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "Being deleted"
  return health
end
local status = obj.status
if status == nil or status.conditions == nil then
  return health
end
if status.observedGeneration ~= obj.metadata.generation then
  return health
end
if obj.spec.suspend == true then
  health.status = "Suspended"
  health.message = "spec.suspend is true"
  return health
end
for _, condition in ipairs(status.conditions) do
  if condition.type == "Stalled" and condition.status == "True" then
    health.status = "Degraded"
    health.message = condition.message
    return health
  end
  if condition.type == "Ready" then
    health.message = condition.message
    if condition.status == "True" then
      health.status = "Healthy"
    end
  end
end
return health
