{{/* Parts common to all pods. */}}

{{- define "hirag.containerSecurity" -}}
{{- toYaml .Values.containerSecurityContext -}}
{{- end -}}

{{/* Scheduling and DNS of a pod: the chart-wide placement, and over it the `pod` section of a part. Arguments: root, pod. */}}
{{- define "hirag.placement" -}}
{{- $placement := .root.Values.placement -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with default (index $placement $key) (index $.pod $key) }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- range $key := list "priorityClassName" "schedulerName" "runtimeClassName" }}
{{- with default (get $placement $key) (index $.pod $key) }}
{{ $key }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- with $placement.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with $placement.dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $placement.hostAliases }}
hostAliases: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Environment variables. Arguments: root, pod. */}}
{{- define "hirag.env" -}}
- {name: HOME, value: /tmp}
- {name: NUMBA_CACHE_DIR, value: /var/cache/numba}
- {name: HIRAG_LOG_FORMAT, value: {{ .root.Values.logFormat }}}
{{- range .root.Values.secretEnv }}
- name: {{ .name }}
  valueFrom: {secretKeyRef: {name: {{ .secretName | quote }}, key: {{ .secretKey | quote }}}}
{{- end }}
{{- with .root.Values.s3 }}
{{- if .region }}
- {name: AWS_REGION, value: {{ .region | quote }}}
- {name: AWS_DEFAULT_REGION, value: {{ .region | quote }}}
{{- end }}
{{- if .existingSecret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .accessKeyIdKey | quote }}}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .secretAccessKeyKey | quote }}}}
{{- if .sessionTokenKey }}
- name: AWS_SESSION_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .sessionTokenKey | quote }}}}
{{- end }}
{{- end }}
{{- end }}
{{- include "hirag.outwardEnv" .root }}
{{- with .pod.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Certificate authorities and proxies, in the variables that the libraries read. */}}
{{- define "hirag.outwardEnv" -}}
{{- if .Values.caBundle.configMap }}
{{- range $name := list "SSL_CERT_FILE" "REQUESTS_CA_BUNDLE" "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH" }}
- {name: {{ $name }}, value: /etc/hirag/ca/bundle.pem}
{{- end }}
{{- end }}
{{- with .Values.proxy }}
{{- if or .http .https }}
{{- range $name, $value := dict "HTTPS_PROXY" .https "HTTP_PROXY" .http "NO_PROXY" .none }}
{{- if $value }}
- {name: {{ $name }}, value: {{ $value | quote }}}
- {name: {{ lower $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Environment variables from whole ConfigMaps and secrets. */}}
{{- define "hirag.envFrom" -}}
{{- with .Values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Init containers of a pod: its own, after one that copies the compiled code of the image, because numba reads it only from a writable folder. Arguments: root, image, pod. */}}
{{- define "hirag.initContainers" -}}
- name: compiled
  image: {{ include "hirag.image" (dict "root" .root "image" .image) }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [cp, --recursive, --no-target-directory, /opt/hirag/numba, /var/cache/numba]
  securityContext: {{- include "hirag.containerSecurity" .root | nindent 4 }}
  resources: {{- toYaml .root.Values.helperResources | nindent 4 }}
  volumeMounts:
    - {name: compiled, mountPath: /var/cache/numba}
{{- with .pod.initContainers }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Arguments: root, pod. */}}
{{- define "hirag.mounts" -}}
- {name: compiled, mountPath: /var/cache/numba}
- {name: config, mountPath: /etc/hirag/config, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if .root.Values.prompts.configMap }}
- {name: prompts, mountPath: /etc/hirag/prompts, readOnly: true}
{{- end }}
{{- if .root.Values.storage.existingClaim }}
- {name: storage, mountPath: {{ .root.Values.storage.mountPath }}}
{{- end }}
{{- if .root.Values.caBundle.configMap }}
- {name: ca-bundle, mountPath: /etc/hirag/ca, readOnly: true}
{{- end }}
{{- with .pod.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Arguments: root, component, pod, scratch (the size of /tmp). */}}
{{- define "hirag.volumes" -}}
- name: config
  configMap: {name: {{ include "hirag.fullname" .root }}-{{ .component }}}
- name: tmp
  emptyDir: {sizeLimit: {{ .scratch }}}
- name: compiled
  emptyDir: {sizeLimit: 100Mi}
{{- if .root.Values.prompts.configMap }}
- name: prompts
  configMap: {name: {{ .root.Values.prompts.configMap | quote }}}
{{- end }}
{{- if .root.Values.storage.existingClaim }}
- name: storage
  persistentVolumeClaim: {claimName: {{ .root.Values.storage.existingClaim | quote }}}
{{- end }}
{{- if .root.Values.caBundle.configMap }}
- name: ca-bundle
  configMap: {name: {{ .root.Values.caBundle.configMap | quote }}, items: [{key: {{ .root.Values.caBundle.key | quote }}, path: bundle.pem}]}
{{- end }}
{{- with .pod.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
