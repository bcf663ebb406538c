{{/*
The runner's pod: what the user wrote, completed by what the container mode needs. It is built as a
value and printed once. Lists of things with names (environment, mounts, volumes, containers) are
completed by name: what the user wrote under a name stays as it is.
*/}}

{{/* Pass (list THEIRS OURS), print THEIRS and those of OURS whose name they do not have, as JSON. */}}
{{- define "scale-set.complete" -}}
{{- $all := index . 0 | default list -}}
{{- $names := list -}}
{{- range $all -}}{{- $names = append $names .name -}}{{- end -}}
{{- range index . 1 -}}
  {{- if not (has .name $names) -}}{{- $all = append $all . -}}{{- end -}}
{{- end -}}
{{- $all | toJson -}}
{{- end -}}

{{- define "scale-set.podSpec" -}}
{{- $mode := include "scale-set.mode" . -}}
{{- $spec := deepCopy .Values.template.spec -}}
{{- $runner := dict -}}
{{- $others := list -}}
{{- range $spec.containers -}}
  {{- if eq .name "runner" -}}{{- $runner = . -}}{{- else -}}{{- $others = append $others . -}}{{- end -}}
{{- end -}}
{{- if not $runner.image -}}
  {{- $_ := set $runner "image" "ghcr.io/actions/actions-runner:latest" -}}
  {{- if not $runner.command -}}{{- $_ := set $runner "command" (list "/home/runner/run.sh") -}}{{- end -}}
{{- end -}}

{{- $env := list -}}
{{- $mounts := list -}}
{{- $volumes := list -}}
{{- $workMount := dict "name" "work" "mountPath" "/home/runner/_work" -}}
{{- if eq $mode "dind" -}}
  {{- $env = list
        (dict "name" "DOCKER_HOST" "value" "unix:///var/run/docker.sock")
        (dict "name" "RUNNER_WAIT_FOR_DOCKER_IN_SECONDS" "value" "120") -}}
  {{- $mounts = list $workMount (dict "name" "dind-sock" "mountPath" "/var/run") -}}
  {{- range list "work" "dind-sock" "dind-externals" -}}
    {{- $volumes = append $volumes (dict "name" . "emptyDir" dict) -}}
  {{- end -}}
{{- else if include "scale-set.hooks" . -}}
  {{- $folder := ternary "k8s" "k8s-novolume" (eq $mode "kubernetes") -}}
  {{- $name := dict "fieldRef" (dict "fieldPath" "metadata.name") -}}
  {{- $env = list
        (dict "name" "ACTIONS_RUNNER_CONTAINER_HOOKS" "value" (printf "/home/runner/%s/index.js" $folder))
        (dict "name" "ACTIONS_RUNNER_POD_NAME" "valueFrom" $name)
        (dict "name" "ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER" "value" "true") -}}
  {{- if eq $mode "kubernetes" -}}
    {{- $mounts = list $workMount -}}
    {{- $claim := dict "spec" .Values.containerMode.kubernetesModeWorkVolumeClaim -}}
    {{- $volumes = list (dict "name" "work" "ephemeral" (dict "volumeClaimTemplate" $claim)) -}}
  {{- else -}}
    {{- $env = append $env (dict "name" "ACTIONS_RUNNER_IMAGE" "value" $runner.image) -}}
  {{- end -}}
{{- end -}}

{{- with .Values.githubServerTLS -}}
{{- if .runnerMountPath -}}
  {{- $from := .certificateFrom.configMapKeyRef -}}
  {{- $path := clean (printf "%s/%s" .runnerMountPath $from.key) -}}
  {{- $env = concat $env (list
        (dict "name" "NODE_EXTRA_CA_CERTS" "value" $path)
        (dict "name" "RUNNER_UPDATE_CA_CERTS" "value" "1")) -}}
  {{- $mounts = append $mounts (dict "name" "github-server-tls-cert" "mountPath" $path "subPath" $from.key) -}}
  {{- $item := dict "key" $from.key "path" $from.key -}}
  {{- $volumes = append $volumes (dict "name" "github-server-tls-cert"
        "configMap" (dict "name" $from.name "items" (list $item))) -}}
{{- end -}}
{{- end -}}

{{- range $field, $ours := dict "env" $env "volumeMounts" $mounts -}}
  {{- with include "scale-set.complete" (list (get $runner $field) $ours) | fromJsonArray -}}
    {{- $_ := set $runner $field . -}}
  {{- end -}}
{{- end -}}
{{- with include "scale-set.complete" (list $spec.volumes $volumes) | fromJsonArray -}}
  {{- $_ := set $spec "volumes" . -}}
{{- end -}}

{{- $containers := list $runner -}}
{{- if eq $mode "dind" -}}
  {{- /* As a sidecar where the cluster has them: it starts before the runner and ends after it. */ -}}
  {{- $sidecars := semverCompare ">=1.29-0" .Capabilities.KubeVersion.Version -}}
  {{- $theirs := dict -}}
  {{- $rest := list -}}
  {{- range concat ($spec.initContainers | default list) $others -}}
    {{- if has .name (list "dind" "init-dind-externals") -}}{{- $_ := set $theirs .name . -}}{{- end -}}
  {{- end -}}
  {{- $externals := include "scale-set.externals" $runner.image | fromJson -}}
  {{- $externals = mergeOverwrite $externals (get $theirs "init-dind-externals" | default dict) -}}
  {{- $docker := include "scale-set.docker" $sidecars | fromJson -}}
  {{- $docker = mergeOverwrite $docker (get $theirs "dind" | default dict) -}}
  {{- $init := list $externals -}}
  {{- if $sidecars -}}
    {{- $init = append $init $docker -}}
  {{- else -}}
    {{- $containers = append $containers $docker -}}
  {{- end -}}
  {{- $_ := set $spec "initContainers" (include "scale-set.complete" (list $init $spec.initContainers) | fromJsonArray) -}}
  {{- $containers = include "scale-set.complete" (list $containers $others) | fromJsonArray -}}
  {{- if $sidecars -}}
    {{- range $containers -}}
      {{- if ne .name "dind" -}}{{- $rest = append $rest . -}}{{- end -}}
    {{- end -}}
    {{- $containers = $rest -}}
  {{- end -}}
{{- else -}}
  {{- $containers = concat $containers $others -}}
{{- end -}}
{{- $_ := set $spec "containers" $containers -}}
{{- $_ := set $spec "restartPolicy" ($spec.restartPolicy | default "Never") -}}
{{- $_ := set $spec "serviceAccountName" ($spec.serviceAccountName | default (include "scale-set.ownServiceAccount" .)) -}}
{{- $spec | toYaml -}}
{{- end -}}

{{/* Copies what jobs in containers need of the runner's image to where Docker finds it. */}}
{{- define "scale-set.externals" -}}
{{- dict "name" "init-dind-externals"
         "image" .
         "command" (list "cp")
         "args" (list "-r" "/home/runner/externals/." "/home/runner/tmpDir/")
         "volumeMounts" (list (dict "name" "dind-externals" "mountPath" "/home/runner/tmpDir")) | toJson -}}
{{- end -}}

{{- define "scale-set.docker" -}}
{{- $docker := dict
      "name" "dind"
      "image" "docker:dind"
      "args" (list "dockerd" "--host=unix:///var/run/docker.sock" "--group=$(DOCKER_GROUP_GID)")
      "env" (list (dict "name" "DOCKER_GROUP_GID" "value" "123"))
      "securityContext" (dict "privileged" true)
      "volumeMounts" (list
        (dict "name" "work" "mountPath" "/home/runner/_work")
        (dict "name" "dind-sock" "mountPath" "/var/run")
        (dict "name" "dind-externals" "mountPath" "/home/runner/externals")) -}}
{{- if . -}}
  {{- $probe := dict "exec" (dict "command" (list "docker" "info")) "failureThreshold" 24 "periodSeconds" 5 -}}
  {{- $docker = merge $docker (dict "restartPolicy" "Always" "startupProbe" $probe) -}}
{{- end -}}
{{- $docker | toJson -}}
{{- end -}}
