{{/* Spec of the Job that creates a RayJob and has the same result. Alerts and CronJobs read the state of Jobs, and the
Job that submits a RayJob succeeds even when the build fails. */}}
{{- define "hirag.watchJobSpec" -}}
backoffLimit: 6 # retries of watching: the next pod watches the same RayJob
{{- with .Values.build.activeDeadlineSeconds }}
# For all attempts of the RayJob: each has its own deadline, plus half an hour to start and stop the cluster.
activeDeadlineSeconds: {{ mul (add (int64 .) 1800) (add 1 (int64 $.Values.build.backoffLimit)) }}
{{- end }}
podFailurePolicy:
  rules:
    - action: FailJob # the build failed, its RayJob was deleted or is refused: another pod would meet the same
      onExitCodes: {containerName: submit, operator: In, values: [10, 11, 12]}
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
template:
  metadata:
    labels: {{- include "hirag.podLabels" (dict "root" . "component" "build-submit" "pod" dict) | nindent 6 }}
    {{- with .Values.build.ray.head.pod.annotations }}
    annotations: {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    serviceAccountName: {{ include "hirag.fullname" . }}-submit
    automountServiceAccountToken: true
    enableServiceLinks: false
    restartPolicy: Never
    securityContext: {{- toYaml .Values.podSecurityContext | nindent 6 }}
    {{- include "hirag.pullSecrets" . | nindent 4 }}
    {{- include "hirag.placement" (dict "root" . "pod" .Values.build.ray.head.pod) | nindent 4 }}
    containers:
      - name: submit
        image: {{ include "hirag.image" (dict "root" . "image" .Values.image) }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        terminationMessagePolicy: FallbackToLogsOnError
        command: [python, /etc/hirag/submit/rayjob.py, /etc/hirag/submit/rayjob.json]
        env:
          - name: NAMESPACE
            valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
          - name: JOB_NAME
            valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/job-name']"}}
          - name: JOB_UID
            valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/controller-uid']"}}
        securityContext: {{- include "hirag.containerSecurity" . | nindent 10 }}
        resources: {{- toYaml .Values.helperResources | nindent 10 }}
        volumeMounts:
          - {name: submit, mountPath: /etc/hirag/submit, readOnly: true}
    volumes:
      - name: submit
        configMap: {name: {{ include "hirag.fullname" . }}-submit}
{{- end -}}
