{{/* Names, labels and annotations. */}}

{{- define "scale-set.name" -}}
{{- .Values.runnerScaleSetName | default .Release.Name -}}
{{- end -}}

{{/* Objects cannot have an underscore in their name, scale sets can. */}}
{{- define "scale-set.objectName" -}}
{{- include "scale-set.name" . | replace "_" "-" -}}
{{- end -}}

{{- define "scale-set.fullName" -}}
{{- $name := printf "%s-%s" (include "scale-set.objectName" .) (.Values.nameOverride | default "gha-rs") -}}
{{- .Values.fullnameOverride | default $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "scale-set.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- define "scale-set.mode" -}}
{{- (.Values.containerMode | default dict).type | default "" -}}
{{- end -}}

{{/* Whether jobs run in pods of their own: not empty if so. */}}
{{- define "scale-set.hooks" -}}
{{- if hasPrefix "kubernetes" (include "scale-set.mode" .) -}}yes{{- end -}}
{{- end -}}

{{- define "scale-set.secret" -}}
{{- if kindIs "string" .Values.githubConfigSecret -}}
  {{- .Values.githubConfigSecret -}}
{{- else -}}
  {{- include "scale-set.fullName" . }}-github-secret
{{- end -}}
{{- end -}}

{{- define "scale-set.managerRole" -}}
{{- include "scale-set.fullName" . }}-manager
{{- end -}}

{{- define "scale-set.hooksName" -}}
{{- include "scale-set.fullName" . }}-kube-mode
{{- end -}}

{{- define "scale-set.noPermission" -}}
{{- include "scale-set.fullName" . }}-no-permission
{{- end -}}

{{/* The service account that this release makes for its runners; empty if the template has one. */}}
{{- define "scale-set.ownServiceAccount" -}}
{{- if not .Values.template.spec.serviceAccountName -}}
  {{- if include "scale-set.hooks" . -}}
    {{- include "scale-set.hooksName" . -}}
  {{- else -}}
    {{- include "scale-set.noPermission" . -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels of one resource: pass (list . RESOURCE COMPONENT). Ours win over the user's. */}}
{{- define "scale-set.labels" -}}
{{- $top := index . 0 -}}
{{- $name := include "scale-set.name" $top -}}
{{- $labels := dict
      "helm.sh/chart" (printf "gha-rs-%s" $top.Chart.Version | replace "+" "_" | trunc 63)
      "app.kubernetes.io/name" $name
      "app.kubernetes.io/instance" $name
      "app.kubernetes.io/version" $top.Chart.AppVersion
      "app.kubernetes.io/managed-by" $top.Release.Service
      "app.kubernetes.io/part-of" "gha-rs"
      "actions.github.com/scale-set-name" $name
      "actions.github.com/scale-set-namespace" (include "scale-set.namespace" $top) -}}
{{- with index . 2 -}}{{- $_ := set $labels "app.kubernetes.io/component" . -}}{{- end -}}
{{- $meta := get ($top.Values.resourceMeta | default dict) (index . 1) | default dict -}}
{{- range $key, $value := merge $labels ($meta.labels | default dict) ($top.Values.labels | default dict) }}
{{ $key }}: {{ $value | quote }}
{{- end -}}
{{- end -}}

{{/* The user's annotations of one resource: pass (list . RESOURCE). Empty if there are none. */}}
{{- define "scale-set.annotations" -}}
{{- $top := index . 0 -}}
{{- $meta := get ($top.Values.resourceMeta | default dict) (index . 1) | default dict -}}
{{- range $key, $value := merge dict ($meta.annotations | default dict) ($top.Values.annotations | default dict) }}
{{- if not (or (hasPrefix "actions.github.com/cleanup-" $key) (eq "actions.github.com/values-hash" $key)) }}
{{ $key }}: {{ $value | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{/*
Metadata of something that must outlive the scale set's clean-up: the controller takes the finalizer
off when it no longer needs it. Pass (list . RESOURCE COMPONENT NAME).
*/}}
{{- define "scale-set.protected" -}}
{{- $top := index . 0 -}}
name: {{ index . 3 }}
namespace: {{ include "scale-set.namespace" $top }}
labels:
  {{- include "scale-set.labels" (list $top (index . 1) (index . 2)) | trim | nindent 2 }}
{{- with include "scale-set.annotations" (list $top (index . 1)) | trim }}
annotations:
  {{- . | nindent 2 }}
{{- end }}
finalizers: [actions.github.com/cleanup-protection]
{{- end -}}

{{/*
The controller's service account, as JSON {"namespace": …, "name": …}: as given, or as the labels of
the controller's deployment say.
*/}}
{{- define "scale-set.controller" -}}
{{- $given := .Values.controllerServiceAccount | default dict -}}
{{- if and $given.name $given.namespace -}}
  {{- dict "namespace" $given.namespace "name" $given.name | toJson -}}
{{- else if or $given.name $given.namespace -}}
  {{- fail "controllerServiceAccount needs both a namespace and a name." -}}
{{- else -}}
  {{- $watched := "actions.github.com/controller-watch-single-namespace" -}}
  {{- $here := include "scale-set.namespace" . -}}
  {{- $found := list -}}
  {{- range (lookup "apps/v1" "Deployment" "" "").items -}}
    {{- $labels := .metadata.labels | default dict -}}
    {{- if and (eq (get $labels "app.kubernetes.io/part-of") "gha-rs-controller")
               (or (not (hasKey $labels $watched)) (eq (get $labels $watched) $here)) -}}
      {{- $found = append $found $labels -}}
    {{- end -}}
  {{- end -}}
  {{- $say := "Set controllerServiceAccount.namespace and controllerServiceAccount.name." -}}
  {{- if not $found -}}
    {{- fail (printf "No controller that watches namespace %s was found in the cluster. %s" $here $say) -}}
  {{- end -}}
  {{- if gt (len $found) 1 -}}
    {{- fail (printf "%d controllers that watch namespace %s were found in the cluster. %s" (len $found) $here $say) -}}
  {{- end -}}
  {{- $labels := first $found -}}
  {{- dict "namespace" (get $labels "actions.github.com/controller-service-account-namespace")
           "name" (get $labels "actions.github.com/controller-service-account-name") | toJson -}}
{{- end -}}
{{- end -}}
