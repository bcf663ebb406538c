{{/* Values that cannot work are refused here, each with a sentence. Included by the deployment. */}}

{{- define "controller.checks" -}}
{{- $flags := .Values.flags -}}
{{- if lt (int .Values.replicaCount) 1 -}}
  {{- fail (printf "replicaCount must be 1 or more, it is %v." .Values.replicaCount) -}}
{{- end -}}
{{- if not (has $flags.logLevel (list "debug" "info" "warn" "error")) -}}
  {{- fail (printf "flags.logLevel must be debug, info, warn or error, it is %q." (toString $flags.logLevel)) -}}
{{- end -}}
{{- if not (has $flags.logFormat (list "text" "json")) -}}
  {{- fail (printf "flags.logFormat must be text or json, it is %q." (toString $flags.logFormat)) -}}
{{- end -}}
{{- if not (has ($flags.workqueueRateLimiter | default "") (list "" "bucket_rate_limiter" "typed_rate_limiter")) -}}
  {{- fail (printf "flags.workqueueRateLimiter must be bucket_rate_limiter or typed_rate_limiter, it is %q." (toString $flags.workqueueRateLimiter)) -}}
{{- end -}}
{{- if not (has ($flags.updateStrategy | default "") (list "" "immediate" "eventual")) -}}
  {{- fail (printf "flags.updateStrategy must be immediate or eventual (both are accepted and without effect), it is %q." (toString $flags.updateStrategy)) -}}
{{- end -}}
{{- range $name := list "runnerMaxConcurrentReconciles" "k8sClientRateLimiterQPS" "k8sClientRateLimiterBurst" -}}
  {{- $value := get $flags $name -}}
  {{- if and (hasKey $flags $name) (lt (int $value) 1) -}}
    {{- fail (printf "flags.%s must be a number of 1 or more, it is %v." $name $value) -}}
  {{- end -}}
{{- end -}}
{{- with $flags.watchSingleNamespace -}}
  {{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" (toString .)) -}}
    {{- fail (printf "flags.watchSingleNamespace must be the name of one namespace, it is %q." (toString .)) -}}
  {{- end -}}
{{- end -}}
{{- if eq .Values.serviceAccount.name "default" -}}
  {{- fail "serviceAccount.name must not be default: its permissions would be those of every pod in the namespace." -}}
{{- end -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
  {{- fail "serviceAccount.name must name an existing service account when serviceAccount.create is false." -}}
{{- end -}}
{{- if not .Values.image.repository -}}
  {{- fail "image.repository must name the image of the manager." -}}
{{- end -}}
{{- range .Values.imagePullSecrets -}}
  {{- if not (and (kindIs "map" .) .name) -}}
    {{- fail (printf "imagePullSecrets must be a list of {name: SECRET}, it holds %v." .) -}}
  {{- end -}}
{{- end -}}
{{- with .Values.metrics -}}
  {{- range $name := list "controllerManagerAddr" "listenerAddr" -}}
    {{- $address := get $.Values.metrics $name | default "" | toString -}}
    {{- if and $address (ne $address "0") (not (regexMatch "^[^:]*:[0-9]+$" $address)) -}}
      {{- fail (printf "metrics.%s must be an address like \":8080\", it is %q." $name $address) -}}
    {{- end -}}
  {{- end -}}
  {{- $endpoint := .listenerEndpoint | default "" | toString -}}
  {{- if and $endpoint (not (hasPrefix "/" $endpoint)) -}}
    {{- fail (printf "metrics.listenerEndpoint must be a path that begins with a slash, like \"/metrics\"; it is %q." $endpoint) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
