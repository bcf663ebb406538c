{{/* Names and labels. */}}

{{- define "controller.baseName" -}}
{{- .Values.nameOverride | default "gha-rs-controller" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "controller.fullName" -}}
{{- $name := include "controller.baseName" . -}}
{{- if .Values.fullnameOverride -}}
  {{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
  {{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
  {{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "controller.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- define "controller.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "controller.fullName" .) -}}
{{- end -}}

{{- define "controller.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* What the deployment selects its pods by: must never change. */}}
{{- define "controller.selector" -}}
app.kubernetes.io/name: {{ include "controller.baseName" . }}
app.kubernetes.io/namespace: {{ include "controller.namespace" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "controller.labels" -}}
{{- $own := dict
      "helm.sh/chart" (printf "gha-rs-controller-%s" .Chart.Version | replace "+" "_" | trunc 63)
      "app.kubernetes.io/version" .Chart.AppVersion
      "app.kubernetes.io/part-of" "gha-rs-controller"
      "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $own = merge $own (include "controller.selector" . | fromYaml) -}}
{{- range $key, $value := merge $own (.Values.labels | default dict) }}
{{ $key }}: {{ $value | quote }}
{{- end -}}
{{- end -}}

{{/* Metadata of an object: pass (list . NAME NAMESPACE); no namespace for a cluster-wide one. */}}
{{- define "controller.metadata" -}}
{{- $top := index . 0 -}}
name: {{ index . 1 }}
{{- with index . 2 }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "controller.labels" $top | trim | nindent 2 }}
{{- end -}}

{{/* The subject of every binding: the manager's service account. */}}
{{- define "controller.subjects" -}}
- kind: ServiceAccount
  name: {{ include "controller.serviceAccount" . }}
  namespace: {{ include "controller.namespace" . }}
{{- end -}}
