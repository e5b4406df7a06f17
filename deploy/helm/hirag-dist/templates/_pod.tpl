{{/* Parts of every pod. */}}

{{- define "hirag.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where a pod may run. Given: the `pod` of a part of the values. */}}
{{- define "hirag.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* The environment. Given: root, pod. */}}
{{- define "hirag.env" -}}
- {name: HOME, value: /tmp}
{{- range .root.Values.secretEnv }}
- name: {{ .name }}
  valueFrom: {secretKeyRef: {name: {{ .secretName }}, key: {{ .secretKey }}}}
{{- end }}
{{- with .root.Values.s3 }}
{{- if .region }}
- {name: AWS_REGION, value: {{ .region | quote }}}
- {name: AWS_DEFAULT_REGION, value: {{ .region | quote }}}
{{- end }}
{{- if .existingSecret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .accessKeyIdKey }}}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .secretAccessKeyKey }}}}
{{- if .sessionTokenKey }}
- name: AWS_SESSION_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .sessionTokenKey }}}}
{{- end }}
{{- end }}
{{- end }}
{{- with .pod.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Given: root. */}}
{{- define "hirag.mounts" -}}
- {name: config, mountPath: /etc/hirag/config, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if .root.Values.prompts.configMap }}
- {name: prompts, mountPath: /etc/hirag/prompts, readOnly: true}
{{- end }}
{{- if .root.Values.storage.existingClaim }}
- {name: storage, mountPath: {{ .root.Values.storage.mountPath }}}
{{- end }}
{{- end -}}

{{/* Given: root, component, scratch (the size of /tmp). */}}
{{- define "hirag.volumes" -}}
- name: config
  configMap: {name: {{ include "hirag.fullname" .root }}-{{ .component }}}
- name: tmp
  emptyDir: {sizeLimit: {{ .scratch }}}
{{- if .root.Values.prompts.configMap }}
- name: prompts
  configMap: {name: {{ .root.Values.prompts.configMap }}}
{{- end }}
{{- if .root.Values.storage.existingClaim }}
- name: storage
  persistentVolumeClaim: {claimName: {{ .root.Values.storage.existingClaim }}}
{{- end }}
{{- end -}}
