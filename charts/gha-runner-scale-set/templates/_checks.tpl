{{/* Values that cannot work are refused here, each with a sentence. Included by the scale set. */}}

{{- define "scale-set.checks" -}}
{{- include "scale-set.checkNames" . -}}
{{- include "scale-set.checkAccess" . -}}
{{- include "scale-set.checkCounts" . -}}
{{- include "scale-set.checkNetwork" . -}}
{{- include "scale-set.checkPods" . -}}
{{- end -}}

{{- define "scale-set.checkNames" -}}
{{- $name := include "scale-set.name" . -}}
{{- if gt (len $name) 45 -}}
  {{- fail (printf "runnerScaleSetName (or the name of the release) must have at most 45 characters, %q has %d." $name (len $name)) -}}
{{- end -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" (include "scale-set.objectName" .)) -}}
  {{- fail (printf "runnerScaleSetName must consist of small letters, digits, '-', '_' and '.', and begin and end with a letter or digit; it is %q." $name) -}}
{{- end -}}
{{- $namespace := include "scale-set.namespace" . -}}
{{- if gt (len $namespace) 63 -}}
  {{- fail (printf "namespaceOverride must have at most 63 characters, %q has %d." $namespace (len $namespace)) -}}
{{- end -}}
{{- $labels := .Values.scaleSetLabels -}}
{{- if and $labels (not (kindIs "slice" $labels)) -}}
  {{- fail (printf "scaleSetLabels must be a list of labels, it is %v." $labels) -}}
{{- end -}}
{{- range $labels -}}
  {{- if or (not (kindIs "string" .)) (not .) -}}
    {{- fail (printf "scaleSetLabels must hold texts that are not empty, it holds %v." .) -}}
  {{- end -}}
  {{- if ge (len .) 256 -}}
    {{- fail (printf "scaleSetLabels must hold labels of at most 255 characters, %q… has %d." (trunc 20 .) (len .)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "scale-set.checkAccess" -}}
{{- $url := .Values.githubConfigUrl | default "" -}}
{{- if not $url -}}
  {{- fail "githubConfigUrl is required: the URL of an enterprise, organization or repository, such as https://github.com/my-org." -}}
{{- end -}}
{{- if not (regexMatch "^https?://[^/]+/[^/]+" $url) -}}
  {{- fail (printf "githubConfigUrl must be the URL of an enterprise, organization or repository, such as https://github.com/my-org; it is %q." $url) -}}
{{- end -}}
{{- $secret := .Values.githubConfigSecret -}}
{{- $vault := (.Values.keyVault | default dict).type -}}
{{- $app := list "github_app_id" "github_app_installation_id" "github_app_private_key" -}}
{{- if not $secret -}}
  {{- fail "githubConfigSecret is required: the name of a secret, a github_token, or the three values of a GitHub App." -}}
{{- else if kindIs "map" $secret -}}
  {{- if $vault -}}
    {{- fail "githubConfigSecret must be the name of a secret in the vault when keyVault is set." -}}
  {{- end -}}
  {{- $missing := list -}}
  {{- range $app -}}
    {{- if not (get $secret .) -}}{{- $missing = append $missing . -}}{{- end -}}
  {{- end -}}
  {{- if and $secret.github_token (lt (len $missing) 3) -}}
    {{- fail "githubConfigSecret must hold either github_token or the values of a GitHub App, not both." -}}
  {{- end -}}
  {{- if and (not $secret.github_token) (eq (len $missing) 3) -}}
    {{- fail "githubConfigSecret must hold github_token, or github_app_id, github_app_installation_id and github_app_private_key." -}}
  {{- end -}}
  {{- if and (not $secret.github_token) $missing -}}
    {{- fail (printf "githubConfigSecret lacks %s of the GitHub App." (join " and " $missing)) -}}
  {{- end -}}
  {{- range $key, $value := $secret -}}
    {{- if and $value (not (kindIs "string" $value)) -}}
      {{- fail (printf "githubConfigSecret.%s must be a text: put the number into quotes." $key) -}}
    {{- end -}}
  {{- end -}}
{{- else if not (kindIs "string" $secret) -}}
  {{- fail "githubConfigSecret must be the name of a secret or a map of credentials." -}}
{{- end -}}
{{- if and $vault (ne $vault "azure_key_vault") -}}
  {{- fail (printf "keyVault.type must be azure_key_vault, it is %q." $vault) -}}
{{- end -}}
{{- if $vault -}}
  {{- $azure := include "scale-set.azureKeyVault" . | fromJson -}}
  {{- range $key := list "url" "tenantId" "clientId" "certificatePath" -}}
    {{- if not (get $azure $key) -}}
      {{- fail (printf "keyVault.azureKeyVault.%s is required." $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* The vault's values as JSON, written either way that charts have had them. */}}
{{- define "scale-set.azureKeyVault" -}}
{{- $vault := .Values.keyVault | default dict -}}
{{- $given := $vault.azureKeyVault | default $vault.azure_key_vault | default dict -}}
{{- dict "url" $given.url
         "tenantId" ($given.tenantId | default $given.tenant_id)
         "clientId" ($given.clientId | default $given.client_id)
         "certificatePath" ($given.certificatePath | default $given.certificate_path) | toJson -}}
{{- end -}}

{{- define "scale-set.checkCounts" -}}
{{- range $name := list "minRunners" "maxRunners" -}}
  {{- $value := get $.Values $name -}}
  {{- if hasKey $.Values $name -}}
    {{- if not (regexMatch "^[0-9]+$" (include "scale-set.number" $value)) -}}
      {{- fail (printf "%s must be a whole number of 0 or more, it is %v." $name $value) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and (not (kindIs "invalid" .Values.minRunners)) (not (kindIs "invalid" .Values.maxRunners)) -}}
  {{- if gt (int64 .Values.minRunners) (int64 .Values.maxRunners) -}}
    {{- fail (printf "minRunners must not be greater than maxRunners, they are %d and %d." (int64 .Values.minRunners) (int64 .Values.maxRunners)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* A number as text. Numbers of a values file are floats, which print as 1e+06. */}}
{{- define "scale-set.number" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{- int64 . -}}{{- else if kindIs "string" . -}}text{{- else -}}{{- . -}}{{- end -}}
{{- end -}}

{{- define "scale-set.checkNetwork" -}}
{{- range $name, $proxy := dict "proxy" .Values.proxy "keyVault.proxy" (.Values.keyVault | default dict).proxy -}}
  {{- range $scheme := list "http" "https" -}}
    {{- $server := get ($proxy | default dict) $scheme -}}
    {{- if and $server (not (regexMatch "^https?://[^/@]+" ($server.url | default ""))) -}}
      {{- fail (printf "%s.%s.url must be the address of a proxy, such as http://proxy.example.com:3128." $name $scheme) -}}
    {{- end -}}
    {{- if and $server (contains "@" $server.url) -}}
      {{- fail (printf "%s.%s.url must not hold credentials: put username and password into a secret and name it in credentialSecretRef." $name $scheme) -}}
    {{- end -}}
  {{- end -}}
  {{- with ($proxy | default dict).noProxy -}}
    {{- if not (kindIs "slice" .) -}}
      {{- fail (printf "%s.noProxy must be a list of hosts, it is %v." $name .) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- with .Values.githubServerTLS -}}
  {{- $reference := (.certificateFrom | default dict).configMapKeyRef | default dict -}}
  {{- if not (and $reference.name $reference.key) -}}
    {{- fail "githubServerTLS.certificateFrom.configMapKeyRef must have a name and a key." -}}
  {{- end -}}
  {{- if and .runnerMountPath (not (hasPrefix "/" .runnerMountPath)) -}}
    {{- fail (printf "githubServerTLS.runnerMountPath must begin with '/', it is %q." .runnerMountPath) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "scale-set.checkPods" -}}
{{- $mode := include "scale-set.mode" . -}}
{{- if not (has $mode (list "" "dind" "kubernetes" "kubernetes-novolume")) -}}
  {{- fail (printf "containerMode.type must be dind, kubernetes or kubernetes-novolume, it is %q." $mode) -}}
{{- end -}}
{{- $spec := (.Values.template | default dict).spec | default dict -}}
{{- $runners := 0 -}}
{{- range $spec.containers -}}
  {{- if not .name -}}
    {{- fail "template.spec.containers holds a container without a name." -}}
  {{- end -}}
  {{- if eq .name "runner" -}}{{- $runners = add1 $runners -}}{{- end -}}
{{- end -}}
{{- if ne (int $runners) 1 -}}
  {{- fail (printf "template.spec.containers must have one container named runner, it has %d." (int $runners)) -}}
{{- end -}}
{{- if eq $mode "kubernetes" -}}
  {{- $work := false -}}
  {{- range $spec.volumes -}}
    {{- if eq .name "work" -}}{{- $work = true -}}{{- end -}}
  {{- end -}}
  {{- if not (or $work .Values.containerMode.kubernetesModeWorkVolumeClaim) -}}
    {{- fail "containerMode.kubernetesModeWorkVolumeClaim is required with containerMode.type kubernetes, unless template.spec.volumes has a volume named work." -}}
  {{- end -}}
{{- end -}}
{{- with .Values.listenerTemplate -}}
  {{- if not (.spec | default dict).containers -}}
    {{- fail "listenerTemplate.spec.containers is required: it may be [{name: listener}]." -}}
  {{- end -}}
{{- end -}}
{{- range $name, $meta := .Values.resourceMeta -}}
  {{- if not (has $name (include "scale-set.resources" . | fromJsonArray)) -}}
    {{- fail (printf "resourceMeta.%s is not known; there are %s." $name (join ", " (include "scale-set.resources" . | fromJsonArray))) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "scale-set.resources" -}}
["autoscalingRunnerSet", "githubConfigSecret", "managerRole", "managerRoleBinding",
 "noPermissionServiceAccount", "kubernetesModeRole", "kubernetesModeRoleBinding",
 "kubernetesModeServiceAccount", "autoscalingListener", "listenerServiceAccount", "listenerRole",
 "listenerRoleBinding", "listenerConfigSecret", "ephemeralRunnerSet", "ephemeralRunner",
 "ephemeralRunnerConfigSecret"]
{{- end -}}
