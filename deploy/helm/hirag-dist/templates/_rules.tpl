{{/* Groups of alerts. Each name is a heading of docs/operations/alerts.md, which describes the response. */}}
{{- define "hirag.rules" -}}
{{- $rules := .Values.monitoring.prometheusRule -}}
{{- $these := printf "namespace=%q,service=%q" .Release.Namespace (printf "%s-metrics" (include "hirag.fullname" .)) -}}
{{- $failed := printf "hirag_service_requests_total{%s,code=~\"INTERNAL|UNKNOWN|UNAVAILABLE|DATA_LOSS\"}" $these }}
groups:
  {{- if .Values.query.enabled }}
  - name: {{ include "hirag.fullname" . }}.service
    rules:
      {{- include "hirag.alert" (dict "root" . "name" "HiragDown" "severity" "critical" "for" "5m"
        "expr" (printf "(sum(hirag_service_serving{%s}) or vector(0)) == 0" $these)
        "summary" "No process answers questions"
        "description" "For five minutes no pod has said that it serves.") | nindent 6 }}
      {{- include "hirag.alert" (dict "root" . "name" "HiragErrors" "severity" "critical" "for" "10m"
        "expr" (printf "sum(rate(%s[5m])) / sum(rate(hirag_service_requests_total{%s}[5m])) > 0.01 and sum(increase(%s[15m])) >= 5" $failed $these $failed)
        "summary" "Questions fail"
        "description" "{{ $value | humanizePercentage }} of the requests of the last five minutes failed within the service.") | nindent 6 }}
      {{- include "hirag.alert" (dict "root" . "name" "HiragOverloaded" "severity" "warning" "for" "10m"
        "expr" (printf "sum(rate(hirag_service_refused_total{%s,reason=~\"queue|deadline|full|answers\"}[5m])) / sum(rate(hirag_service_requests_total{%s}[5m])) > 0.05" $these $these)
        "summary" "More is asked than the pods can answer"
        "description" "{{ $value | humanizePercentage }} of the requests were turned away for load.") | nindent 6 }}
      {{- include "hirag.alert" (dict "root" . "name" "HiragSlow" "severity" "warning" "for" "15m"
        "expr" (printf "histogram_quantile(0.99, sum by (le) (rate(hirag_service_request_seconds_bucket{%s,method=\"Retrieve\"}[5m]))) > %v" $these $rules.slowSeconds)
        "summary" "Retrievals are slow"
        "description" "One in a hundred takes longer than {{ $value | humanizeDuration }}.") | nindent 6 }}
      {{- include "hirag.alert" (dict "root" . "name" "HiragWorkersDie" "severity" "warning" "for" "0m"
        "expr" (printf "sum(increase(hirag_service_worker_deaths_total{%s}[30m])) > 2" $these)
        "summary" "Processes of the service die"
        "description" "{{ $value | humanize }} processes ended unasked within half an hour.") | nindent 6 }}
      {{- include "hirag.alert" (dict "root" . "name" "HiragSwapFailed" "severity" "warning" "for" "0m"
        "expr" (printf "sum(increase(hirag_snapshot_swaps_total{%s,outcome=\"failed\"}[30m])) > 0" $these)
        "summary" "A new snapshot was not taken up"
        "description" "The pods go on with the snapshot that they have.") | nindent 6 }}
      {{- include "hirag.alert" (dict "root" . "name" "HiragSnapshotsDiffer" "severity" "warning" "for" "15m"
        "expr" (printf "count(count by (snapshot) (hirag_snapshot_info{%s} > 0)) > 1" $these)
        "summary" "Pods serve different snapshots"
        "description" "{{ $value }} snapshots have been served side by side for a quarter of an hour.") | nindent 6 }}
      {{- with $rules.snapshotAgeHours }}
      {{- include "hirag.alert" (dict "root" $ "name" "HiragSnapshotOld" "severity" "warning" "for" "15m"
        "expr" (printf "time() - min(hirag_snapshot_created_timestamp_seconds{%s}) > %v * 3600" $these .)
        "summary" "The index is old"
        "description" "What is served was published {{ $value | humanizeDuration }} ago.") | nindent 6 }}
      {{- end }}
      {{- include "hirag.alert" (dict "root" . "name" "HiragCallersFileFailed" "severity" "critical" "for" "1m"
        "expr" (printf "max(hirag_service_callers_file_failed{%s}) == 1" $these)
        "summary" "The callers file is missing, empty or wrong"
        "description" "Former callers are valid, or none is: a revoked token may still be accepted.") | nindent 6 }}
      {{- include "hirag.alert" (dict "root" . "name" "HiragTokenEnds" "severity" "info" "for" "15m"
        "expr" (printf "min(hirag_service_token_expiry_timestamp_seconds{%s}) - time() < %v * 86400" $these $rules.expiryDays)
        "summary" "A caller's token ends soon"
        "description" "The next one is good for {{ $value | humanizeDuration }} more.") | nindent 6 }}
      {{- if $rules.kubeStateMetrics }}
      {{- include "hirag.alert" (dict "root" . "name" "HiragPodsNotReady" "severity" "warning" "for" "30m"
        "expr" (printf "max(kube_deployment_status_replicas_unavailable{namespace=%q,deployment=%q}) > 0" .Release.Namespace (printf "%s-query" (include "hirag.fullname" .)))
        "summary" "Pods of the service do not become ready"
        "description" "{{ $value }} of them for half an hour. A roll waits, and the old ones answer, if there are any.") | nindent 6 }}
      {{- end }}
  {{- end }}
  {{- if include "hirag.buildAlerts" . }}
  {{- $jobs := include "hirag.buildJobs" . }}
  {{- $there := printf "namespace=%q" .Release.Namespace }}
  - name: {{ include "hirag.fullname" . }}.builds
    rules:
      {{- include "hirag.alert" (dict "root" . "name" "HiragBuildFailed" "severity" "warning" "for" "0m"
        "expr" (include "hirag.failedBuilds" .)
        "summary" "A build failed"
        "description" "Job {{ $labels.job_name }} failed. What is served stays as it is. Of a scheduled build this ends with the next success, of a single one with another or when the Job is deleted.") | nindent 6 }}
      {{- with $rules.buildHours }}
      {{- include "hirag.alert" (dict "root" $ "name" "HiragBuildLong" "severity" "warning" "for" "5m"
        "expr" (printf "time() - max by (job_name) ((kube_job_status_start_time{%s} and on (job_name) (%s)) unless on (job_name) (kube_job_failed{%s,condition=\"true\"} == 1 or kube_job_complete{%s,condition=\"true\"} == 1)) > %v * 3600" $there $jobs $there $there .)
        "summary" "A build takes long"
        "description" "Job {{ $labels.job_name }} has been running for {{ $value | humanizeDuration }}; until it ends no other build begins.") | nindent 6 }}
      {{- end }}
      {{- if and $rules.overdueHours .Values.build.schedule.enabled (not .Values.build.schedule.suspend) }}
      {{- $cron := printf "%s,cronjob=%q" $there (printf "%s-build" (include "hirag.fullname" .)) }}
      {{- include "hirag.alert" (dict "root" . "name" "HiragBuildOverdue" "severity" "warning" "for" "5m"
        "expr" (printf "time() - max(kube_cronjob_status_last_successful_time{%s} or on () kube_cronjob_created{%s}) > %v * 3600" $cron $cron $rules.overdueHours)
        "summary" "No build has succeeded for long"
        "description" "By the schedule the last one did {{ $value | humanizeDuration }} ago.") | nindent 6 }}
      {{- end }}
  {{- end }}
{{- end -}}

{{/* Series of the Jobs whose result is that of a build: the schedule's and the single build's. KubeRay's submitter is not among them: it succeeds even when the build fails. */}}
{{- define "hirag.buildJobs" -}}
{{- $there := printf "namespace=%q" .Release.Namespace -}}
{{- $these := list -}}
{{- if .Values.build.schedule.enabled -}}{{- $these = append $these (include "hirag.nights" .) -}}{{- end -}}
{{- if .Values.build.once -}}
{{- $these = append $these (printf "kube_job_info{%s,job_name=%q}" $there (include "hirag.onceName" .)) -}}
{{- end -}}
{{- join " or " $these -}}
{{- end -}}

{{- define "hirag.nights" -}}
{{- printf "kube_job_owner{namespace=%q,owner_kind=\"CronJob\",owner_name=\"%s-build\"}" .Release.Namespace (include "hirag.fullname" .) -}}
{{- end -}}

{{/* Failed Jobs, one sample each. A scheduled build counts until a later build succeeds. A single build counts until its
Job is deleted: a scheduled build that was skipped while it ran succeeds without saying how it ended. */}}
{{- define "hirag.failedBuilds" -}}
{{- $there := printf "namespace=%q" .Release.Namespace -}}
{{- $failed := printf "on (job_name) (kube_job_failed{%s,condition=\"true\"} == 1)" $there -}}
{{- $these := list -}}
{{- if .Values.build.schedule.enabled -}}
{{- $these = append $these (printf "max by (job_name) ((kube_job_created{%s} and on (job_name) (%s)) and %s) > on () group_left () (%s or vector(0))" $there (include "hirag.nights" .) $failed (include "hirag.lastSuccess" .)) -}}
{{- end -}}
{{- if .Values.build.once -}}
{{- $these = append $these (printf "max by (job_name) (kube_job_created{%s,job_name=%q} and %s)" $there (include "hirag.onceName" .) $failed) -}}
{{- end -}}
{{- join " or " $these -}}
{{- end -}}

{{/* Non-empty if there are alerts on builds. */}}
{{- define "hirag.buildAlerts" -}}
{{- if and .Values.monitoring.prometheusRule.kubeStateMetrics (include "hirag.builds" .) -}}true{{- end -}}
{{- end -}}

{{/* Time of the last successful build, one sample; empty if none succeeded. */}}
{{- define "hirag.lastSuccess" -}}
{{- $there := printf "namespace=%q" .Release.Namespace -}}
{{- $these := list -}}
{{- if .Values.build.schedule.enabled -}}
{{- $these = append $these (printf "kube_cronjob_status_last_successful_time{%s,cronjob=\"%s-build\"}" $there (include "hirag.fullname" .)) -}}
{{- end -}}
{{- if .Values.build.once -}}
{{- $these = append $these (printf "kube_job_status_completion_time{%s,job_name=%q}" $there (include "hirag.onceName" .)) -}}
{{- end -}}
{{- printf "max(%s)" (join " or " $these) -}}
{{- end -}}

{{/* An alert. Arguments: root, name, expr, for, severity, summary, description. */}}
{{- define "hirag.alert" -}}
- alert: {{ .name }}
  expr: {{ .expr | quote }}
  for: {{ .for }}
  labels: {severity: {{ .severity }}, namespace: {{ .root.Release.Namespace | quote }}, release: {{ .root.Release.Name | quote }}}
  annotations:
    summary: {{ .summary | quote }}
    description: {{ .description | quote }}
    {{- with .root.Values.monitoring.prometheusRule.runbookUrl }}
    runbook_url: {{ . }}#{{ lower $.name }}
    {{- end }}
{{- end -}}
