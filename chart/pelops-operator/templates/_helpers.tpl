{{/* Objects come from files/, which tools/chart.py copies from manifests/: there is one source. */}}

{{- define "pelops.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "pelops.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "pelops.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Labels that each object has beside those of the manifests. */}}
{{- define "pelops.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") | quote }}
{{- end -}}

{{- define "pelops.selectorLabels" -}}
app.kubernetes.io/name: pelops
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* The objects of a file of manifests. Takes root and file; gives YAML with the list `items`. */}}
{{- define "pelops.load" -}}
{{- $text := .root.Files.Get .file -}}
{{- if not $text -}}
{{- fail (printf "the chart has no %s: it was packaged without it" .file) -}}
{{- end -}}
{{- $items := list -}}
{{- range splitList "\n---\n" $text -}}
{{- $object := fromYaml . -}}
{{- if not (hasKey $object "kind") -}}
{{- fail (printf "%s: %s" $.file (toJson $object)) -}}
{{- end -}}
{{- $items = append $items $object -}}
{{- end -}}
{{- dict "items" $items | toYaml -}}
{{- end -}}

{{/* A name of the manifests as it is in this release. */}}
{{- define "pelops.name" -}}
{{- if hasPrefix "pelops-operator" .name -}}
{{- printf "%s%s" (include "pelops.fullname" .root) (trimPrefix "pelops-operator" .name) -}}
{{- else -}}
{{- .name -}}
{{- end -}}
{{- end -}}

{{/* An object of the manifests with the names, the namespace and the labels of this release.
Takes root and object; a name of its own, and a namespace where it is not that of the release. */}}
{{- define "pelops.print" -}}
{{- $root := .root -}}
{{- $object := .object -}}
{{- $meta := $object.metadata -}}
{{- $_ := set $meta "name" (.name | default (include "pelops.name" (dict "root" $root "name" $meta.name))) -}}
{{- if .namespace -}}
{{- $_ := set $meta "namespace" .namespace -}}
{{- else if eq (default "" $meta.namespace) "pelops-system" -}}
{{- $_ := set $meta "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- $added := include "pelops.labels" $root | fromYaml -}}
{{- $_ := set $meta "labels" (merge dict $added (default dict $meta.labels) $root.Values.commonLabels) -}}
{{- with merge dict (default dict $meta.annotations) $root.Values.commonAnnotations -}}
{{- $_ := set $meta "annotations" . -}}
{{- end -}}
{{- with $object.roleRef -}}
{{- $_ := set . "name" (include "pelops.name" (dict "root" $root "name" .name)) -}}
{{- end -}}
{{- range $object.subjects -}}
{{- $_ := set . "name" (include "pelops.serviceAccountName" $root) -}}
{{- $_ := set . "namespace" $root.Release.Namespace -}}
{{- end }}
---
{{ toYaml $object }}
{{- end -}}

{{/* A reference to an image. Takes root and image. */}}
{{- define "pelops.image" -}}
{{- $image := .image -}}
{{- $registry := default .root.Values.image.registry $image.registry -}}
{{- $name := ternary (printf "%s/%s" $registry $image.repository) $image.repository (ne $registry "") -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The operator's rules: of its whole role, or of a Role in one namespace. Takes root and namespaced;
gives YAML with the list `rules`. */}}
{{- define "pelops.rules" -}}
{{- $root := .root -}}
{{- $namespaced := .namespaced -}}
{{- $loaded := (include "pelops.load" (dict "root" $root "file" "files/base/cluster_role.yaml") | fromYaml).items -}}
{{- $rules := list -}}
{{- range $rule := (first $loaded).rules -}}
{{- $kept := list -}}
{{- range $rule.resources -}}
{{- $audit := or (hasPrefix "streamaudits" .) (eq . "cronjobs") -}}
{{- $whole := eq . "nodes" -}}
{{- if not (or (and $audit (not $root.Values.audits.enabled)) (and $whole $namespaced)) -}}
{{- $kept = append $kept . -}}
{{- end -}}
{{- end -}}
{{- if $kept -}}
{{- $_ := set $rule "resources" $kept -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- if $root.Values.audits.sparkOperators -}}
{{- $spark := (include "pelops.load" (dict "root" $root "file" "files/spark-operators/cluster_role.yaml") | fromYaml).items -}}
{{- $rules = concat $rules (first $spark).rules -}}
{{- end -}}
{{- $rules = concat $rules $root.Values.rbac.extraRules -}}
{{- dict "rules" $rules | toYaml -}}
{{- end -}}

{{/* Values that contradict each other. */}}
{{- define "pelops.validate" -}}
{{- $v := .Values -}}
{{- if and (not $v.clusterResources) (not $v.watchNamespaces) -}}
{{- fail "clusterResources: false needs watchNamespaces: without a ClusterRole the operator cannot manage all namespaces" -}}
{{- end -}}
{{- if and (not $v.clusterResources) (eq $v.metrics.authentication "token") -}}
{{- fail "metrics.authentication: token needs clusterResources: true: the operator asks the API server about tokens with a ClusterRole" -}}
{{- end -}}
{{- if and $v.audits.sparkOperators (not $v.audits.enabled) -}}
{{- fail "audits.sparkOperators needs audits.enabled: true" -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor.enabled $v.metrics.podMonitor.enabled -}}
{{- fail "enable metrics.serviceMonitor or metrics.podMonitor: with both, each replica is scraped twice" -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor.enabled (not $v.metrics.service.enabled) -}}
{{- fail "metrics.serviceMonitor needs metrics.service.enabled: true; metrics.podMonitor works without a Service" -}}
{{- end -}}
{{- if and $v.networkPolicy.auditJobs (not $v.watchNamespaces) -}}
{{- fail "networkPolicy.auditJobs needs watchNamespaces, which name the namespaces of the jobs" -}}
{{- end -}}
{{- end -}}
