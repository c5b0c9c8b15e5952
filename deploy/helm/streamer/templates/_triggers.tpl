{{/* KEDA's triggers: one for each topic of each Kafka source of the service file. Nothing without a Kafka source. */}}
{{- define "streamer.triggers" -}}
{{- $documents := fromJsonArray (include "streamer.documents" .) -}}
{{- range $index, $document := $documents -}}
{{- $name := $document.name | default (ternary (printf "%s-%d" (include "streamer.name" $) $index) (include "streamer.name" $) (gt (len $documents) 1)) -}}
{{- range $source := fromJsonArray (include "streamer.listed" $document.source) -}}
{{- if eq $source.type "kafka" -}}
{{- $bootstrap := $.Values.keda.bootstrapServers | default (include "streamer.resolved" (dict "text" ($source.bootstrap | default "${KAFKA_BOOTSTRAP_SERVERS}") "env" $.Values.env)) -}}
{{- if contains "${" $bootstrap -}}
{{- fail (printf "keda.bootstrapServers: is empty, and the brokers of the service file, %s, are not in env; set keda.bootstrapServers or env" $bootstrap) -}}
{{- end -}}
{{- $group := include "streamer.resolved" (dict "text" ($source.group | default $name) "env" $.Values.env) -}}
{{- $topics := list -}}
{{- range $topic := ternary $source.topics (list $source.topics) (kindIs "slice" $source.topics) -}}
{{- /* Without a topic KEDA asks for all that the group has committed offsets of: it knows no patterns. */ -}}
{{- $topics = append $topics (ternary "" (include "streamer.resolved" (dict "text" $topic "env" $.Values.env)) (hasPrefix "^" (toString $topic))) -}}
{{- end -}}
{{- range $topic := uniq $topics }}
- type: kafka
  metadata:
    bootstrapServers: {{ $bootstrap | quote }}
    consumerGroup: {{ $group | quote }}
    {{- with $topic }}
    topic: {{ . | quote }}
    {{- end }}
    lagThreshold: {{ $.Values.keda.lag | int64 | quote }}
    activationLagThreshold: {{ $.Values.keda.activationLag | int64 | quote }}
    offsetResetPolicy: {{ eq (toString $source.start) "latest" | ternary "latest" "earliest" }}
    {{- range $key, $value := $.Values.keda.metadata }}
    {{ $key }}: {{ $value | quote }}
    {{- end }}
  {{- with $.Values.keda.authentication }}
  authenticationRef:
    name: {{ . | quote }}
  {{- end }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
