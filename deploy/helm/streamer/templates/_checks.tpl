{{/* What would not work in a cluster, found before anything is installed: each check fails with the key, its value, and what to do. */}}
{{- define "streamer.checks" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository: is empty; set it to the image that you built and pushed, such as --set image.repository=registry.example.com/streamer" -}}
{{- end -}}
{{- if and .Values.service .Values.serviceFile -}}
{{- fail (printf "serviceFile: %q: `service` has a service file already; leave out one of the two" .Values.serviceFile) -}}
{{- end -}}
{{- if not (or .Values.service .Values.serviceFile) -}}
{{- fail "service: is empty; pass the service file, --set-file service=fans.yaml, or set serviceFile to its path in the image or in serviceVolume" -}}
{{- end -}}
{{- if and .Values.service .Values.serviceVolume -}}
{{- fail "serviceVolume: `service` has a service file already; leave out one of the two" -}}
{{- end -}}
{{- if and .Values.files (not .Values.service) -}}
{{- fail (printf "files: %s: files are mounted beside `service`, which is empty; put them into serviceVolume or the image" (keys .Values.files | sortAlpha | join ", ")) -}}
{{- end -}}
{{- if and .Values.data.claim.size (ne .Values.workload "StatefulSet") -}}
{{- fail (printf "data.claim.size: %s: only a StatefulSet has a volume for each pod; set workload: StatefulSet, or data.volume" .Values.data.claim.size) -}}
{{- end -}}
{{- if and .Values.serviceAccount.automountToken (eq .Values.secrets.mountPath "/run/secrets") .Values.secrets.files -}}
{{- fail "secrets.mountPath: /run/secrets: Kubernetes mounts the service account's token inside of it; set another folder, such as /etc/streamer/secrets" -}}
{{- end -}}
{{- include "streamer.checks.grace" . -}}
{{- range fromJsonArray (include "streamer.documents" .) -}}
{{- range fromJsonArray (include "streamer.listed" .source) -}}
{{- include "streamer.checks.source" (dict "source" . "values" $.Values) -}}
{{- end -}}
{{- range concat (fromJsonArray (include "streamer.listed" .sink)) (fromJsonArray (include "streamer.listed" .dead_letter)) -}}
{{- include "streamer.checks.sink" (dict "sink" . "values" $.Values) -}}
{{- end -}}
{{- end -}}
{{- include "streamer.checks.keda" . -}}
{{- include "streamer.checks.references" . -}}
{{- end }}

{{/* SIGTERM is followed by SIGKILL after the grace period: until then the service has to have drained, and to have left its group. */}}
{{- define "streamer.checks.grace" -}}
{{- if .Values.drain -}}
{{- if not (include "streamer.seconds" .Values.drain) -}}
{{- fail (printf "drain: %q: a duration is needed, such as 25s or 2m" .Values.drain) -}}
{{- end -}}
{{- range fromJsonArray (include "streamer.documents" .) -}}
{{- $seconds := include "streamer.seconds" (dig "limits" "drain" "25s" .) -}}
{{- if and $seconds (ne (float64 $seconds) (include "streamer.seconds" $.Values.drain | float64)) -}}
{{- fail (printf "drain: %s: the service file says limits.drain: %v; leave out `drain`, which is for files that the chart cannot read" $.Values.drain (dig "limits" "drain" "25s (its default)" .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $drain := include "streamer.drain" . | float64 -}}
{{- if lt (include "streamer.grace" . | float64) (addf $drain 5) -}}
{{- fail (printf "terminationGracePeriodSeconds: %v: limits.drain of the service is %vs; 5 seconds more are needed at least, or Kubernetes kills the process while it finishes records: leave it out (then it is %d), or set a lower limits.drain" .Values.terminationGracePeriodSeconds $drain (add (ceil $drain | int) 15)) -}}
{{- end -}}
{{- end }}

{{- define "streamer.checks.keda" -}}
{{- if .Values.keda.enabled -}}
{{- if kindIs "invalid" .Values.keda.maxReplicas -}}
{{- fail "keda.maxReplicas: is empty; set it to the number of partitions of the topic (of the one with the most, where there are several): members beyond that are idle" -}}
{{- end -}}
{{- if lt (int .Values.keda.maxReplicas) (int .Values.keda.minReplicas) -}}
{{- fail (printf "keda.maxReplicas: %v: is below keda.minReplicas, %v" .Values.keda.maxReplicas .Values.keda.minReplicas) -}}
{{- end -}}
{{- if not (or .Values.keda.triggers (include "streamer.triggers" .)) -}}
{{- fail "keda.enabled: true: the service file has no Kafka source whose lag could be asked; set keda.triggers, or keda.enabled: false" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "streamer.checks.source" -}}
{{- $source := .source -}}
{{- $values := .values -}}
{{- $label := printf "service: source.%s" ($source.name | default $source.type) -}}
{{- $several := or (gt (int $values.replicas) 1) $values.keda.enabled -}}
{{- if eq $source.type "kafka" -}}
{{- if $source.instance -}}
{{- if $values.keda.enabled -}}
{{- fail (printf "%s: instance: %s: a static member does not leave its group, so after each scaling down its partitions are not read for session.timeout.ms; leave out instance, or set keda.enabled: false" $label $source.instance) -}}
{{- end -}}
{{- if ne $values.workload "StatefulSet" -}}
{{- fail (printf "%s: instance: %s: pods of a Deployment get new names, and a static member does not leave its group; set workload: StatefulSet, or leave out instance" $label $source.instance) -}}
{{- end -}}
{{- if and $several (not (contains "${" (toString $source.instance))) -}}
{{- fail (printf "%s: instance: %s: each of %d pods needs its own; write %s-${POD_NAME}" $label $source.instance (int $values.replicas) $source.instance) -}}
{{- end -}}
{{- end -}}
{{- else if eq $source.type "mqtt" -}}
{{- if and (not $source.share) (ne $values.workload "StatefulSet") -}}
{{- fail (printf "%s: type: mqtt: its session belongs to one pod, and a Deployment starts the new pod before it stops the old one; set workload: StatefulSet" $label) -}}
{{- end -}}
{{- if and (not $source.share) $values.keda.enabled -}}
{{- fail (printf "%s: type: mqtt: each pod has a session of its own at the broker, so their number is fixed; set keda.enabled: false" $label) -}}
{{- end -}}
{{- if and (not $source.share) (not $source.shard) $several -}}
{{- fail (printf "%s: type: mqtt: all of %d pods would have the same session; add shard: {index: \"${POD_NAME}\", count: \"${REPLICAS}\", level: LEVEL OF topics}, or set replicas: 1" $label (int $values.replicas)) -}}
{{- end -}}
{{- if $source.shard -}}
{{- $count := include "streamer.resolved" (dict "text" $source.shard.count "env" (merge (dict "REPLICAS" $values.replicas) $values.env)) -}}
{{- if and (regexMatch `^[0-9]+$` $count) (ne (int $count) (int $values.replicas)) -}}
{{- fail (printf "%s: shard.count: %s: there are %d pods (replicas), so messages of some topics would be run by none or by two; write count: \"${REPLICAS}\"" $label $count (int $values.replicas)) -}}
{{- end -}}
{{- if not (contains "${" (toString $source.shard.index)) -}}
{{- if $several -}}
{{- fail (printf "%s: shard.index: %v: each pod needs its own; write index: \"${POD_NAME}\"" $label $source.shard.index) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- else if and (has $source.type (list "camera" "file")) $several -}}
{{- fail (printf "%s: type: %s: every pod would read the same; set replicas: 1 and keda.enabled: false, and a release for each part" $label $source.type) -}}
{{- end -}}
{{- end }}

{{- define "streamer.checks.sink" -}}
{{- $label := printf "service: sink.%s" (.sink.name | default .sink.type) -}}
{{- if and (eq (toString .sink.type) "mqtt") (or (gt (int .values.replicas) 1) .values.keda.enabled (eq .values.workload "Deployment")) -}}
{{- if not (contains "${" (toString .sink.client_id)) -}}
{{- fail (printf "%s: client_id: %s: two pods with one client id disconnect each other; write client_id: NAME-${POD_NAME}" $label (.sink.client_id | default "(made from the names of service and sink)")) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Variables and secrets that the service file names have to be there, as far as the chart can see. */}}
{{- define "streamer.checks.references" -}}
{{- $text := regexReplaceAll `(?m)(^|\s)#.*$` .Values.service "" | replace "$$" "" -}}
{{- range regexFindAll `\$\{file:[^}]*\}` $text -1 -}}
{{- $path := regexReplaceAll `^\$\{file:(.*)\}$` . "${1}" -}}
{{- if and (hasPrefix (printf "%s/" $.Values.secrets.mountPath) $path) (not $.Values.secrets.files) -}}
{{- fail (printf "service: %s: no Secret is mounted in %s; set secrets.files, such as [{name: SECRET WITH THE KEY %s}]" . $.Values.secrets.mountPath (base $path)) -}}
{{- end -}}
{{- end -}}
{{- if not .Values.envFrom -}}
{{- $known := concat (keys .Values.env) (keys .Values.secrets.env) (list "POD_NAME" "HOSTNAME" "HOME" "STREAMER_CACHE" "STREAMER_CONTROL") -}}
{{- if not .Values.keda.enabled -}}
{{- $known = append $known "REPLICAS" -}}
{{- end -}}
{{- range regexFindAll `\$\{[A-Za-z_][A-Za-z0-9_]*\}` $text -1 -}}
{{- $name := regexFind `[A-Za-z_][A-Za-z0-9_]*` . -}}
{{- if not (has $name $known) -}}
{{- fail (printf "service: %s: no such variable; set env.%s, secrets.env.%s or envFrom, or write ${%s:-DEFAULT}" . $name $name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
