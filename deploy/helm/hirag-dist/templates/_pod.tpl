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
- {name: NUMBA_CACHE_DIR, value: /var/cache/numba}
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

{{/* Copies the compiled code of the image to where it can be used: it is looked up only where it could be written too. */}}
{{- define "hirag.compiled" -}}
- name: compiled
  image: {{ include "hirag.image" (dict "root" .root "image" .image) }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [cp, --recursive, --no-target-directory, /opt/hirag/numba, /var/cache/numba]
  securityContext: {{- include "hirag.containerSecurity" .root | nindent 4 }}
  resources:
    requests: {cpu: 50m, memory: 32Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    - {name: compiled, mountPath: /var/cache/numba}
{{- end -}}

{{/* Given: root. */}}
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
{{- end -}}

{{/* Given: root, component, scratch (the size of /tmp). */}}
{{- define "hirag.volumes" -}}
- name: config
  configMap: {name: {{ include "hirag.fullname" .root }}-{{ .component }}}
- name: tmp
  emptyDir: {sizeLimit: {{ .scratch }}}
- name: compiled
  emptyDir: {sizeLimit: 100Mi}
{{- if .root.Values.prompts.configMap }}
- name: prompts
  configMap: {name: {{ .root.Values.prompts.configMap }}}
{{- end }}
{{- if .root.Values.storage.existingClaim }}
- name: storage
  persistentVolumeClaim: {claimName: {{ .root.Values.storage.existingClaim }}}
{{- end }}
{{- end -}}
