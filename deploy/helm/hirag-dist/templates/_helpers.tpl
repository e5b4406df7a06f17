{{/* Names, labels, images. Names have at most 32 characters: KubeRay and CronJobs append up to 15. */}}

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

{{/* Labels that select pods. Arguments: root, component. */}}
{{- define "hirag.selector" -}}
app.kubernetes.io/name: {{ include "hirag.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object. Arguments: root, component. */}}
{{- define "hirag.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "hirag.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of a pod: the selector labels only, so that a new chart version alone restarts no pod. Arguments: root, component, pod. */}}
{{- define "hirag.podLabels" -}}
{{ include "hirag.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- with .pod.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image. Arguments: root, and image, whose keys override those of values.image. */}}
{{- define "hirag.image" -}}
{{- $tag := default .root.Chart.AppVersion .image.tag -}}
{{- with .root.Values.global.imageRegistry -}}{{- printf "%s/" (trimSuffix "/" .) -}}{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository $tag -}}
{{- end -}}
{{- end -}}

{{/* The image of the service. */}}
{{- define "hirag.queryImage" -}}
{{- include "hirag.image" (dict "root" . "image" (ternary .Values.query.image .Values.image (ne .Values.query.image.repository ""))) -}}
{{- end -}}

{{- define "hirag.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.image.pullSecrets | uniq }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Name of the service account. Arguments: root, component (query or build). */}}
{{- define "hirag.serviceAccount" -}}
{{- $account := (index .root.Values .component).serviceAccount -}}
{{- if $account.create -}}
{{- default (printf "%s-%s" (include "hirag.fullname" .root) .component) $account.name -}}
{{- else -}}
{{- default "default" $account.name -}}
{{- end -}}
{{- end -}}

{{/* Secret with the service's certificate; empty without TLS. */}}
{{- define "hirag.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{- printf "%s-tls" (include "hirag.fullname" .) -}}
{{- else -}}
{{- .Values.tls.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* Key of the certificate authority in that secret; empty for a public authority. */}}
{{- define "hirag.authorityKey" -}}
{{- if include "hirag.tlsSecret" . -}}
{{- $public := and .Values.tls.certManager.enabled (not .Values.tls.certManager.internalNames) -}}
{{- kindIs "invalid" .Values.test.ca | ternary (ternary "" "ca.crt" $public) .Values.test.ca -}}
{{- end -}}
{{- end -}}

{{/* Name in the service's certificate; empty if the certificate holds the name of the Service. */}}
{{- define "hirag.serverName" -}}
{{- $manager := .Values.tls.certManager -}}
{{- if .Values.test.serverName -}}
{{- .Values.test.serverName -}}
{{- else if and $manager.enabled (not $manager.internalNames) -}}
{{- first $manager.extraDnsNames -}}
{{- end -}}
{{- end -}}

{{/* A share of a quantity, in bytes. Arguments: quantity, share. */}}
{{- define "hirag.bytes" -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- $number := regexFind "^[0-9.]+([eE][-+]?[0-9]+)?" .quantity -}}
{{- mulf (float64 $number) (get $units (trimPrefix $number .quantity)) .share | floor | int64 -}}
{{- end -}}

{{/* CPUs of a quantity, rounded up. */}}
{{- define "hirag.cpus" -}}
{{- $said := toString . -}}
{{- mulf (float64 (trimSuffix "m" $said)) (ternary 0.001 1.0 (hasSuffix "m" $said)) | ceil | int -}}
{{- end -}}

{{/* Resources of the service; the default of ephemeral-storage covers the cache and /tmp. */}}
{{- define "hirag.queryResources" -}}
{{- $cache := .Values.query.cache -}}
{{- $bytes := ternary 0 (include "hirag.bytes" (dict "quantity" $cache.size "share" 1) | int64) (ne $cache.storageClass "") -}}
{{- $disk := printf "%dMi" (add 1124 (divf (float64 $bytes) 1048576 | ceil | int64)) -}}
{{- $resources := deepCopy (default dict .Values.query.resources) -}}
{{- toYaml (merge $resources (dict "requests" (dict "ephemeral-storage" $disk))) -}}
{{- end -}}

{{/* Non-empty if builds are enabled. */}}
{{- define "hirag.builds" -}}
{{- if or .Values.build.once .Values.build.schedule.enabled -}}true{{- end -}}
{{- end -}}

{{/* Relabelings of an endpoint. Argument: the section of its monitor. */}}
{{- define "hirag.relabelings" -}}
{{- range $key := list "relabelings" "metricRelabelings" }}
{{- with index $ $key }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Namespace of the monitoring objects. */}}
{{- define "hirag.monitoringNamespace" -}}
{{- with .Values.monitoring.namespace }}
namespace: {{ . }}
{{- end }}
{{- end -}}
