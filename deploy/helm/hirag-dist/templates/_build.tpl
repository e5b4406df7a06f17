{{/* Builds: the RayJob, or the Job with one pod. */}}

{{/* A Ray pod. Arguments: root, container, pod, resources, image, sharedMemory, apiToken (whether its autoscaler gets one). */}}
{{- define "hirag.rayPod" -}}
metadata:
  labels: {{- include "hirag.podLabels" (dict "root" .root "component" "build" "pod" .pod) | nindent 4 }}
  {{- with .pod.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "hirag.serviceAccount" (dict "root" .root "component" "build") }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 120 # for replies in flight to come and be stored: they are paid
  enableServiceLinks: false
  securityContext: {{- toYaml .root.Values.podSecurityContext | nindent 4 }}
  {{- include "hirag.pullSecrets" .root | nindent 2 }}
  {{- include "hirag.placement" (dict "root" .root "pod" .pod) | nindent 2 }}
  initContainers:
    {{- include "hirag.initContainers" . | nindent 4 }}
  containers:
    - name: {{ .container }}
      image: {{ include "hirag.image" (dict "root" .root "image" .image) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      env:
        {{- include "hirag.rayEnv" (dict "root" .root "pod" .pod) | nindent 8 }}
      {{- include "hirag.envFrom" .root | nindent 6 }}
      securityContext: {{- include "hirag.containerSecurity" .root | nindent 8 }}
      resources: {{- toYaml .resources | nindent 8 }}
      volumeMounts:
        {{- include "hirag.mounts" . | nindent 8 }}
        - {name: shared-memory, mountPath: /dev/shm}
    {{- with .pod.containers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "hirag.volumes" (dict "root" .root "component" "build" "pod" .pod "scratch" .root.Values.build.scratch.size) | nindent 4 }}
    - name: shared-memory
      emptyDir: {medium: Memory, sizeLimit: {{ .sharedMemory }}}
    {{- if .apiToken }}
    - name: api-token # mounted by the autoscaler's container only: it may change every pod of the namespace
      projected:
        sources:
          - serviceAccountToken: {path: token, expirationSeconds: 3607}
          - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
          - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
    {{- end }}
{{- end -}}

{{/* Environment of a Ray pod. Arguments: root, pod. */}}
{{- define "hirag.rayEnv" -}}
{{ include "hirag.env" . }}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
- {name: RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO, value: "0"}
- {name: RAY_JOB_STOP_WAIT_TIME_S, value: "100"} # between SIGTERM and SIGKILL of the driver
{{- include "hirag.rayAuth" .root }}
{{- end -}}

{{/* Token authentication of Ray, on or off. KubeRay sets mode and token in all of its containers; without them Ray would choose. */}}
{{- define "hirag.rayAuth" -}}
{{- if eq .Values.build.ray.auth.mode "disabled" }}
- {name: RAY_AUTH_MODE, value: disabled}
{{- end }}
{{- end -}}

{{/* Spec of a RayJob. */}}
{{- define "hirag.rayJobSpec" -}}
{{- $build := .Values.build -}}
{{- $ray := $build.ray -}}
{{- $limited := or $build.maxUsd $build.maxTokens | empty | not -}}
# A path and nothing for a shell to read: arguments stand in order.json.
entrypoint: python /etc/hirag/config/build.py /etc/hirag/config/order.json
submissionMode: K8sJobMode
backoffLimit: {{ $build.backoffLimit }}
{{- with $build.activeDeadlineSeconds }}
activeDeadlineSeconds: {{ int64 . }}
{{- end }}
preRunningDeadlineSeconds: {{ int64 $ray.preRunningDeadlineSeconds }}
shutdownAfterJobFinishes: true
ttlSecondsAfterFinished: {{ $build.ttlSecondsAfterFinished }}
# A submitter that finds its job unknown, as after the head began anew, submits it again: with its limit anew.
submitterConfig: {backoffLimit: {{ kindIs "invalid" $ray.submitter.backoffLimit | ternary (ternary 0 2 $limited) $ray.submitter.backoffLimit }}}
submitterPodTemplate: # it stays where the head does, and as long: with it the run ends too
  metadata:
    labels: {{- include "hirag.podLabels" (dict "root" . "component" "build" "pod" dict) | nindent 6 }}
    {{- with $ray.head.pod.annotations }}
    annotations: {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    serviceAccountName: {{ include "hirag.serviceAccount" (dict "root" . "component" "build") }}
    automountServiceAccountToken: false
    enableServiceLinks: false
    restartPolicy: Never
    securityContext: {{- toYaml .Values.podSecurityContext | nindent 6 }}
    {{- include "hirag.pullSecrets" . | nindent 4 }}
    {{- include "hirag.placement" (dict "root" . "pod" $ray.head.pod) | nindent 4 }}
    containers:
      - name: submitter
        image: {{ include "hirag.image" (dict "root" . "image" .Values.image) }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        env:
          - {name: HOME, value: /tmp}
          - {name: RAY_USAGE_STATS_ENABLED, value: "0"}
          {{- include "hirag.rayAuth" . | nindent 10 }}
        securityContext: {{- include "hirag.containerSecurity" . | nindent 10 }}
        resources: {{- toYaml .Values.helperResources | nindent 10 }}
        volumeMounts:
          - {name: tmp, mountPath: /tmp}
    volumes:
      - name: tmp
        emptyDir: {sizeLimit: 1Gi}
rayClusterSpec:
  rayVersion: {{ $ray.version | quote }}
  {{- if eq $ray.auth.mode "token" }}
  authOptions:
    mode: token
    {{- with $ray.auth.existingSecret }}
    secretName: {{ . | quote }}
    {{- end }}
  {{- end }}
  enableInTreeAutoscaling: {{ $ray.autoscaling.enabled }}
  {{- if $ray.autoscaling.enabled }}
  autoscalerOptions:
    idleTimeoutSeconds: {{ $ray.autoscaling.idleSeconds }}
    upscalingMode: Default
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    resources: {{- toYaml $ray.autoscaling.resources | nindent 6 }}
    env:
      - {name: HOME, value: /tmp}
      {{- include "hirag.rayAuth" . | nindent 6 }}
    securityContext: {{- include "hirag.containerSecurity" . | nindent 6 }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      - {name: api-token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  {{- end }}
  headGroupSpec:
    serviceType: ClusterIP
    rayStartParams:
      num-cpus: "0" # no task runs where the cluster's state and the driver are
      num-gpus: "0"
      object-store-memory: {{ include "hirag.bytes" (dict "quantity" "1Gi" "share" 0.9) | quote }} # within its /dev/shm
      dashboard-host: 0.0.0.0 # of the API that jobs are submitted to; a NetworkPolicy says who reaches it
    template:
      {{- include "hirag.rayPod" (dict "root" . "container" "ray-head" "pod" $ray.head.pod "resources" $ray.head.resources "image" .Values.image "sharedMemory" "1Gi" "apiToken" $ray.autoscaling.enabled) | nindent 6 }}
  workerGroupSpecs:
    - groupName: cpu
      replicas: {{ $ray.cpu.minReplicas }}
      minReplicas: {{ $ray.cpu.minReplicas }}
      maxReplicas: {{ $ray.cpu.maxReplicas }}
      rayStartParams:
        num-cpus: {{ $ray.cpu.cpus | quote }}
        num-gpus: "0"
        object-store-memory: {{ include "hirag.bytes" (dict "quantity" $ray.cpu.sharedMemory "share" 0.9) | quote }}
      template:
        {{- include "hirag.rayPod" (dict "root" . "container" "ray-worker" "pod" $ray.cpu.pod "resources" $ray.cpu.resources "image" .Values.image "sharedMemory" $ray.cpu.sharedMemory) | nindent 8 }}
    {{- if $ray.gpu.enabled }}
    {{- $card := dict $ray.gpu.resourceName 1 }}
    {{- $requests := merge (dict) $card (default dict $ray.gpu.resources.requests) }}
    {{- $limits := merge (dict) $card (default dict $ray.gpu.resources.limits) }}
    # One card a pod, and one worker, which asks Ray for the card alone. Without CPUs nothing else comes here, which
    # would keep the pod when there is nothing to compute.
    - groupName: gpu
      replicas: {{ $ray.gpu.minReplicas }}
      minReplicas: {{ $ray.gpu.minReplicas }}
      maxReplicas: {{ $ray.gpu.maxReplicas }}
      rayStartParams:
        num-cpus: "0"
        num-gpus: "1"
        object-store-memory: {{ include "hirag.bytes" (dict "quantity" $ray.gpu.sharedMemory "share" 0.9) | quote }}
      template:
        {{- include "hirag.rayPod" (dict "root" . "container" "ray-worker" "pod" $ray.gpu.pod "resources" (dict "requests" $requests "limits" $limits) "image" $ray.gpu.image "sharedMemory" $ray.gpu.sharedMemory) | nindent 8 }}
    {{- end }}
{{- end -}}

{{/* Spec of a Job with one pod. */}}
{{- define "hirag.inlineJobSpec" -}}
{{- $build := .Values.build -}}
{{- $pod := $build.inline.pod -}}
backoffLimit: {{ $build.backoffLimit }}
{{- with $build.activeDeadlineSeconds }}
activeDeadlineSeconds: {{ int64 . }}
{{- end }}
# A wrong configuration (2) and a spent budget (4) are the same at the next try.
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes: {containerName: build, operator: In, values: [2, 4]}
    {{- if not (or $build.maxUsd $build.maxTokens) }}
    # Where spending is limited, a pod that is drained away counts as a try: the next would have the limit anew.
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    {{- end }}
template:
  metadata:
    labels: {{- include "hirag.podLabels" (dict "root" . "component" "build" "pod" $pod) | nindent 6 }}
    {{- with $pod.annotations }}
    annotations: {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    serviceAccountName: {{ include "hirag.serviceAccount" (dict "root" . "component" "build") }}
    automountServiceAccountToken: false
    enableServiceLinks: false
    restartPolicy: Never
    terminationGracePeriodSeconds: 120 # for replies in flight to come and be stored: they are paid
    securityContext: {{- toYaml .Values.podSecurityContext | nindent 6 }}
    {{- include "hirag.pullSecrets" . | nindent 4 }}
    {{- include "hirag.placement" (dict "root" . "pod" $pod) | nindent 4 }}
    initContainers:
      {{- include "hirag.initContainers" (dict "root" . "image" .Values.image "pod" $pod) | nindent 6 }}
    containers:
      - name: build
        image: {{ include "hirag.image" (dict "root" . "image" .Values.image) }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        command: [python, /etc/hirag/config/build.py, /etc/hirag/config/order.json]
        env: {{- include "hirag.env" (dict "root" . "pod" $pod) | nindent 10 }}
        {{- include "hirag.envFrom" . | nindent 8 }}
        securityContext: {{- include "hirag.containerSecurity" . | nindent 10 }}
        resources: {{- toYaml $build.inline.resources | nindent 10 }}
        volumeMounts: {{- include "hirag.mounts" (dict "root" . "pod" $pod) | nindent 10 }}
      {{- with $pod.containers }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    volumes: {{- include "hirag.volumes" (dict "root" . "component" "build" "pod" $pod "scratch" $build.scratch.size) | nindent 6 }}
{{- end -}}

{{/* Spec of the Job that builds, or that watches the RayJob. */}}
{{- define "hirag.buildJobSpec" -}}
{{- include (ternary "hirag.watchJobSpec" "hirag.inlineJobSpec" (eq (include "hirag.executor" .) "ray")) . -}}
{{- end -}}

{{/* Name of the single build, with a hash of all values that affect it. A change starts a new build, which reuses finished work and paid replies. */}}
{{- define "hirag.onceName" -}}
{{- $decisive := print (include "hirag.buildJobSpec" .) (include "hirag.config.build" .) (include "hirag.buildOrder" .) -}}
{{- if eq (include "hirag.executor" .) "ray" -}}{{- $decisive = print $decisive (include "hirag.rayJobSpec" .) -}}{{- end -}}
{{- printf "%s-build-%s" (include "hirag.fullname" .) ($decisive | sha256sum | trunc 8) -}}
{{- end -}}

{{/* Labels and annotations of the Job of a build. What queues read stands on the Job that runs the build, or on its RayJob. */}}
{{- define "hirag.jobMetadata" -}}
{{- $inline := eq (include "hirag.executor" .) "inline" -}}
labels:
  {{- include "hirag.labels" (dict "root" . "component" "build") | nindent 2 }}
  {{- with ternary .Values.build.job.labels dict $inline }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with ternary .Values.build.job.annotations dict $inline }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
