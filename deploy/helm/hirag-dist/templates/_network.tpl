{{/* What all pods may reach. */}}

{{- define "hirag.dnsEgress" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
  {{- with .Values.networkPolicy.dns }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "hirag.outwardEgress" -}}
- ports:
    {{- range include "hirag.egressPorts" . | fromJsonArray }}
    - {port: {{ int . }}, protocol: TCP}
    {{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}
