{{/* Names, labels, images. Names end at 32 characters: KubeRay and CronJobs put up to 15 behind them. */}}

{{- define "hirag.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "hirag.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 32 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select pods. Given: root, component. */}}
{{- define "hirag.selector" -}}
app.kubernetes.io/name: {{ include "hirag.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object. Given: root, component. */}}
{{- define "hirag.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "hirag.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of a pod: what selects it, so that a chart's new version alone replaces none. Given: root, component, pod. */}}
{{- define "hirag.podLabels" -}}
{{ include "hirag.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- with .pod.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image. Given: root, and image with keys that win over those of values.image. */}}
{{- define "hirag.image" -}}
{{- $tag := default .root.Chart.AppVersion .image.tag -}}
{{- with .root.Values.global.imageRegistry -}}{{- printf "%s/" (trimSuffix "/" .) -}}{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository $tag -}}
{{- end -}}
{{- end -}}

{{- define "hirag.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.image.pullSecrets | uniq }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Given: root, component (query or build). */}}
{{- define "hirag.serviceAccount" -}}
{{- $account := (index .root.Values .component).serviceAccount -}}
{{- if $account.create -}}
{{- default (printf "%s-%s" (include "hirag.fullname" .root) .component) $account.name -}}
{{- else -}}
{{- default "default" $account.name -}}
{{- end -}}
{{- end -}}

{{/* The secret with the service's certificate; empty where it has none. */}}
{{- define "hirag.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{- printf "%s-tls" (include "hirag.fullname" .) -}}
{{- else -}}
{{- .Values.tls.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* Under which key of that secret the authority is that signed; empty where it is one that everybody trusts. */}}
{{- define "hirag.authorityKey" -}}
{{- if include "hirag.tlsSecret" . -}}
{{- $public := and .Values.tls.certManager.enabled (not .Values.tls.certManager.internalNames) -}}
{{- kindIs "invalid" .Values.test.ca | ternary (ternary "" "ca.crt" $public) .Values.test.ca -}}
{{- end -}}
{{- end -}}

{{/* A name in the service's certificate, where that of the Service does not stand in it. */}}
{{- define "hirag.serverName" -}}
{{- $manager := .Values.tls.certManager -}}
{{- if .Values.test.serverName -}}
{{- .Values.test.serverName -}}
{{- else if and $manager.enabled (not $manager.internalNames) -}}
{{- first $manager.extraDnsNames -}}
{{- end -}}
{{- end -}}

{{/* As the chart of Milvus names its Service (its template milvus.fullname), and the port that it is given. */}}
{{- define "hirag.milvusUri" -}}
{{- $milvus := .Values.milvus -}}
{{- $name := default "milvus" $milvus.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- printf "http://%s:%d" (default $full $milvus.fullnameOverride | trunc 63 | trimSuffix "-") (include "hirag.milvusPort" . | int) -}}
{{- end -}}

{{- define "hirag.milvusPort" -}}
{{- dig "service" "port" 19530 .Values.milvus -}}
{{- end -}}

{{/* A share of a quantity, in bytes. Given: quantity, share. */}}
{{- define "hirag.bytes" -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- $unit := get $units (regexFind "[kMGTP]i?$" .quantity) -}}
{{- mulf (float64 (regexFind "^[0-9.]+" .quantity)) $unit .share | floor | int64 -}}
{{- end -}}

{{/* CPUs of a quantity, the next whole number. */}}
{{- define "hirag.cpus" -}}
{{- $said := toString . -}}
{{- mulf (float64 (trimSuffix "m" $said)) (ternary 0.001 1.0 (hasSuffix "m" $said)) | ceil | int -}}
{{- end -}}

{{/* Resources of the service: of the node's disk it asks for what the cache and /tmp may take, if nothing else is said. */}}
{{- define "hirag.queryResources" -}}
{{- $cache := .Values.query.cache -}}
{{- $bytes := ternary 0 (include "hirag.bytes" (dict "quantity" $cache.size "share" 1) | int64) (ne $cache.storageClass "") -}}
{{- $disk := printf "%dMi" (add 1124 (divf (float64 $bytes) 1048576 | ceil | int64)) -}}
{{- $resources := deepCopy (default dict .Values.query.resources) -}}
{{- toYaml (merge $resources (dict "requests" (dict "ephemeral-storage" $disk))) -}}
{{- end -}}

{{/* Whether builds are made. */}}
{{- define "hirag.builds" -}}
{{- if or .Values.build.once .Values.build.schedule.enabled -}}true{{- end -}}
{{- end -}}

{{/* Where objects for monitoring belong. */}}
{{- define "hirag.monitoringNamespace" -}}
{{- with .Values.monitoring.namespace }}
namespace: {{ . }}
{{- end }}
{{- end -}}
