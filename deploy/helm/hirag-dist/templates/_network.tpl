{{/* Parts of the network policies, and Ingress and Gateway API routes. */}}

{{- define "hirag.ipFamilies" -}}
{{- with .Values.query.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- end -}}

{{/* An Ingress. Arguments: root, ingress, name (of object and Service), port (its name). */}}
{{- define "hirag.ingress" -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ .name }}
  labels: {{- include "hirag.labels" (dict "root" .root "component" "query") | nindent 4 }}
  {{- with .ingress.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .ingress.className }}
  ingressClassName: {{ . }}
  {{- end }}
  tls:
    - hosts: {{- toYaml .ingress.hosts | nindent 8 }}
      {{- with .ingress.tlsSecret }}
      secretName: {{ . }}
      {{- end }}
  rules:
    {{- range .ingress.hosts }}
    - host: {{ . | quote }}
      http:
        paths:
          - {path: /, pathType: Prefix, backend: {service: {name: {{ $.name }}, port: {name: {{ $.port }}}}}}
    {{- end }}
{{- end -}}

{{/* A Gateway API route. Arguments: root, kind, route, name (of object and Service), port (its number). */}}
{{- define "hirag.route" -}}
apiVersion: gateway.networking.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  labels: {{- include "hirag.labels" (dict "root" .root "component" "query") | nindent 4 }}
  {{- with .route.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  parentRefs: {{- toYaml .route.parentRefs | nindent 4 }}
  {{- with .route.hostnames }}
  hostnames: {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    - backendRefs: [{name: {{ .name }}, port: {{ .port }}}]
{{- end -}}

{{- define "hirag.dnsEgress" -}}
- ports:
    {{- range .Values.networkPolicy.dnsPorts }}
    - {port: {{ . }}, protocol: UDP}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
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
