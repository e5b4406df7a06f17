{{/* hirag.yaml as mounted: the value config and the keys that are set from other values. */}}

{{- define "hirag.config.common" -}}
{{- $config := deepCopy .Values.config -}}
{{- if .Values.prompts.configMap -}}
{{- $_ := set $config "prompts" "/etc/hirag/prompts" -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Configuration of the service, without the keys that concern builds only. */}}
{{- define "hirag.config.query" -}}
{{- $config := include "hirag.config.common" . | fromYaml -}}
{{- $service := default dict $config.service -}}
{{- $host := ternary "[::]" "0.0.0.0" (eq .Values.query.bindAddress "::") -}}
{{- $_ := set $service "listen" (printf "%s:50051" $host) -}}
{{- $_ := set $service "metrics_listen" (printf "%s:9464" $host) -}}
{{- $_ := set $service "cache_dir" "/var/cache/hirag" -}}
{{- $_ := set $service "cache_bytes" (include "hirag.bytes" (dict "quantity" .Values.query.cache.size "share" 0.95) | int64) -}}
{{- if .Values.callers.existingSecret -}}
{{- $_ := set $service "callers_file" (printf "/etc/hirag/callers/%s" .Values.callers.key) -}}
{{- end -}}
{{- with .Values.query.page -}}
{{- if .enabled -}}
{{- $_ := set $service "http" (printf "%s:8443" $host) -}}
{{- $names := concat .names (ternary .ingress.hosts list .ingress.enabled) (ternary .httpRoute.hostnames list .httpRoute.enabled) -}}
{{- $_ := set $service "http_names" (concat $names (include "hirag.pageNames" $ | fromYamlArray) | uniq) -}}
{{- if .clientCertificateSecret -}}
{{- $_ := set $service "http_client_cert" "/etc/hirag/page/tls.crt" -}}
{{- $_ := set $service "http_client_key" "/etc/hirag/page/tls.key" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "hirag.tlsSecret" . -}}
{{- $_ := set $service "tls_cert" "/etc/hirag/tls/tls.crt" -}}
{{- $_ := set $service "tls_key" "/etc/hirag/tls/tls.key" -}}
{{- end -}}
{{- if .Values.tls.clientCa.existingSecret -}}
{{- $_ := set $service "tls_client_ca" (printf "/etc/hirag/client-ca/%s" .Values.tls.clientCa.key) -}}
{{- end -}}
{{- $_ := set $config "service" $service -}}
{{- toYaml (omit $config "execution") -}}
{{- end -}}

{{/* Host names of the web page within the cluster, as a YAML list. */}}
{{- define "hirag.pageNames" -}}
{{- $name := printf "%s-page" (include "hirag.fullname" .) -}}
{{- range $suffix := list "" (printf ".%s" .Release.Namespace) (printf ".%s.svc" .Release.Namespace) (printf ".%s.svc.%s" .Release.Namespace .Values.clusterDomain) }}
- {{ $name }}{{ $suffix }}
{{- end }}
{{- end -}}

{{/* Configuration of a build, without the keys of the service, so that a change of these starts no build. */}}
{{- define "hirag.config.build" -}}
{{- $config := include "hirag.config.common" . | fromYaml -}}
{{- $execution := default dict $config.execution -}}
{{- if eq (include "hirag.executor" .) "ray" -}}
{{- $_ := set $execution "ray_address" "auto" -}}
{{- $ray := .Values.build.ray -}}
{{- if not $execution.workers -}}
{{- /* The cluster starts small and grows with the queue of workers, so its size at the start is no limit. */ -}}
{{- $_ := set $execution "workers" (mul $ray.cpu.maxReplicas $ray.cpu.cpus) -}}
{{- end -}}
{{- if and $ray.gpu.enabled (not (hasKey $execution "gpu_workers")) -}}
{{- $_ := set $execution "gpu_workers" (int $ray.gpu.maxReplicas) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "execution" $execution -}}
{{- toYaml (omit $config "service" "retrieval") -}}
{{- end -}}

{{- define "hirag.executor" -}}
{{- $executor := dig "execution" "executor" "ray" .Values.config -}}
{{- ternary "ray" $executor (eq $executor "auto") -}}
{{- end -}}

{{/* Commands for files/build.py, as JSON. */}}
{{- define "hirag.buildOrder" -}}
{{- $build := .Values.build -}}
{{- $where := list "--index" .Values.index.uri "--wait" (toString $build.waitSeconds) -}}
{{- $limits := list -}}
{{- if $build.maxUsd -}}{{- $limits = concat $limits (list "--max-usd" (toString $build.maxUsd)) -}}{{- end -}}
{{- if $build.maxTokens -}}{{- $limits = concat $limits (list "--max-tokens" (int64 $build.maxTokens | toString)) -}}{{- end -}}
{{- if $build.requireComplete -}}{{- $limits = append $limits "--require-complete" -}}{{- end -}}
{{- $order := dict "config" "/etc/hirag/config/hirag.yaml" "build" (concat (list "index") $build.inputs $where $limits) -}}
{{- if $build.retryLetters -}}{{- $_ := set $order "retry" (concat (list "retry") $where $limits) -}}{{- end -}}
{{- with $build.prune -}}
{{- if .enabled -}}
{{- $_ := set $order "prune" (concat (list "prune") $where (list "--keep" (toString .keep) "--older-than" .olderThan)) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $order "accepted" (ternary (list 3) list (eq $build.incomplete "accept")) -}}
{{- toJson $order -}}
{{- end -}}

{{/* TCP ports other than 443 in the URLs of models, Milvus, traces and private object stores, as a JSON list. */}}
{{- define "hirag.egressPorts" -}}
{{- $config := include "hirag.config.common" . | fromYaml -}}
{{- $urls := list (default "" $config.traces_endpoint) .Values.proxy.http .Values.proxy.https -}}
{{- $vectors := default dict .Values.config.vectors -}}
{{- with $vectors.uri -}}{{- $urls = append $urls . -}}{{- end -}}
{{- range $endpoint := dig "llm" "endpoints" dict $config -}}
{{- $urls = append $urls (dig "base_url" "" (default dict $endpoint)) -}}
{{- end -}}
{{- $ports := concat (list 443) .Values.networkPolicy.egressPorts -}}
{{- range $url := $urls -}}
{{- if and $url (regexMatch "^https?://[^$]+$" $url) -}}
{{- $host := (urlParse $url).host -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $host) -}}
{{- $ports = append $ports (int (default (ternary "80" "443" (hasPrefix "http:" $url)) $port)) -}}
{{- end -}}
{{- end -}}
{{- range $uri := concat (list .Values.index.uri) .Values.build.inputs -}}
{{- $port := regexFind "[0-9]+$" (regexFind "endpoint_override=[^&]*(:|%3[Aa])[0-9]+" $uri) -}}
{{- if $port -}}
{{- $ports = append $ports (int $port) -}}
{{- else if and (contains "endpoint_override=" $uri) (regexMatch "[?&]scheme=http(&|$)" $uri) -}}
{{- $ports = append $ports 80 -}}
{{- end -}}
{{- end -}}
{{- $numbers := list -}}
{{- range $ports -}}{{- $numbers = append $numbers (int .) -}}{{- end -}}
{{- $numbers | uniq | toJson -}}
{{- end -}}
