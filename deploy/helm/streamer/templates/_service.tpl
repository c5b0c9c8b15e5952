{{/* What the chart reads in the service file. */}}

{{/* The YAML documents of `service` as a JSON list. */}}
{{- define "streamer.documents" -}}
{{- $documents := list -}}
{{- range $index, $text := regexSplit `(?m)^---([ \t].*)?$` .Values.service -1 -}}
{{- $document := fromYaml $text -}}
{{- if hasKey $document "Error" -}}
{{- fail (printf "service: document %d of the service file is not a mapping in YAML: %s" $index $document.Error) -}}
{{- end -}}
{{- if $document -}}
{{- $documents = append $documents $document -}}
{{- end -}}
{{- end -}}
{{- toJson $documents -}}
{{- end }}

{{/* A field that is one mapping or a list of them, as a JSON list of mappings. */}}
{{- define "streamer.listed" -}}
{{- if kindIs "slice" . -}}{{ toJson . }}{{- else if kindIs "map" . -}}{{ toJson (list .) }}{{- else -}}[]{{- end -}}
{{- end }}

{{/* A duration of a service file in seconds; nothing for what is none, such as a reference to a variable. */}}
{{- define "streamer.seconds" -}}
{{- $text := toString . | trim -}}
{{- $seconds := dict "us" 0.000001 "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 -}}
{{- if regexMatch `^[0-9]+(\.[0-9]+)?$` $text -}}
{{ $text }}
{{- else if regexMatch `^[0-9]+(\.[0-9]+)?\s*(us|ms|s|m|h|d)$` $text -}}
{{ mulf (regexFind `^[0-9.]+` $text | float64) (get $seconds (regexFind `[a-z]+$` $text)) }}
{{- end -}}
{{- end }}

{{/* The longest limits.drain of the services in seconds: of the file, else of the value `drain`, else streamer's default. */}}
{{- define "streamer.drain" -}}
{{- $longest := 0.0 -}}
{{- $unknown := not .Values.service -}}
{{- range fromJsonArray (include "streamer.documents" .) -}}
{{- $drain := dig "limits" "drain" "25s" . -}}
{{- $seconds := include "streamer.seconds" $drain -}}
{{- if $seconds -}}
{{- $longest = maxf $longest (float64 $seconds) -}}
{{- else -}}
{{- $unknown = true -}}
{{- end -}}
{{- end -}}
{{- if $unknown -}}
{{- $longest = maxf $longest (include "streamer.seconds" (.Values.drain | default "25s") | float64) -}}
{{- end -}}
{{- $longest -}}
{{- end }}

{{- define "streamer.grace" -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{ add (include "streamer.drain" . | float64 | ceil | int) 15 }}
{{- else -}}
{{ .Values.terminationGracePeriodSeconds | int }}
{{- end -}}
{{- end }}

{{/* A text of the service file with its references to variables replaced, as far as `env` has them: (dict "text" TEXT "env" MAP).
What is left with a ${...} is not known here. */}}
{{- define "streamer.resolved" -}}
{{- $text := toString .text -}}
{{- $env := .env -}}
{{- range regexFindAll `\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}` $text -1 -}}
{{- $name := regexFind `[A-Za-z_][A-Za-z0-9_]*` . -}}
{{- if get $env $name -}}
{{- $text = replace . (toString (get $env $name)) $text -}}
{{- else if contains ":-" . -}}
{{- $text = replace . (regexReplaceAll `^\$\{[^:]*:-(.*)\}$` . "${1}") $text -}}
{{- end -}}
{{- end -}}
{{- $text -}}
{{- end }}
