{{/* The name of the release's objects: room is left for what a StatefulSet appends to it. */}}
{{- define "streamer.name" -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "streamer.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "streamer.labels" -}}
{{ include "streamer.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "streamer.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest }}
{{- else -}}
{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "streamer.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "streamer.name" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{/* The folder of the service file in the container, and the file. The folder has the release's name because a file with a
general name, such as app.yaml, gives the service and its consumer group the name of its folder. */}}
{{- define "streamer.folder" -}}
/srv/{{ include "streamer.name" . }}
{{- end }}

{{- define "streamer.file" -}}
{{- if .Values.service -}}
{{ include "streamer.folder" . }}/{{ include "streamer.name" . }}.yaml
{{- else if .Values.serviceVolume -}}
{{ include "streamer.folder" . }}/{{ .Values.serviceFile }}
{{- else -}}
{{ .Values.serviceFile }}
{{- end -}}
{{- end }}

{{/* A StatefulSet gives each pod a volume of its own where it is asked to. */}}
{{- define "streamer.claims" -}}
{{- if .Values.data.claim.size -}}true{{- end -}}
{{- end }}

{{/* A value as a text: numbers without an exponent, which Helm would write for large ones. */}}
{{- define "streamer.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end }}
