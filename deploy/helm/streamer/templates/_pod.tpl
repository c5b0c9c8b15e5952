{{/* The pod of the Deployment or the StatefulSet. */}}
{{- define "streamer.pod" -}}
metadata:
  labels:
    {{- include "streamer.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    {{- /* A changed service file is read by new pods only: this rolls them. */}}
    checksum/service: {{ dict "service" .Values.service "files" .Values.files | toJson | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "streamer.serviceAccount" . }}
  automountServiceAccountToken: {{ .Values.serviceAccount.automountToken }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "streamer.grace" . }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - {{ toYaml . | nindent 6 | trim }}
      {{- if not .labelSelector }}
      labelSelector:
        matchLabels:
          {{- include "streamer.selector" $ | nindent 10 }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- if or .Values.models.download.image .Values.initContainers }}
  initContainers:
    {{- with .Values.models.download }}
    {{- if .image }}
    - name: models
      image: {{ .image | quote }}
      {{- with .command }}
      command:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .args }}
      args:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .env }}
      env:
        {{- range $name, $value := . }}
        - name: {{ $name }}
          value: {{ include "streamer.text" $value | quote }}
        {{- end }}
      {{- end }}
      {{- with .envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $.Values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: models, mountPath: {{ $.Values.models.mountPath | quote }}}
        - {name: tmp, mountPath: /tmp}
    {{- end }}
    {{- end }}
    {{- with .Values.initContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    - name: streamer
      image: {{ include "streamer.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [streamer]
      args:
        - run
        - {{ include "streamer.file" . | quote }}
        {{- range .Values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- if not .Values.keda.enabled }}
        - name: REPLICAS
          value: {{ .Values.replicas | quote }}
        {{- end }}
        - name: STREAMER_CONTROL
          value: "0.0.0.0:{{ .Values.control.port }}"
        - name: STREAMER_CACHE
          value: /var/cache/streamer
        - name: HOME
          value: /tmp
        {{- range $name, $value := .Values.env }}
        - name: {{ $name }}
          value: {{ include "streamer.text" $value | quote }}
        {{- end }}
        {{- range $name, $secret := .Values.secrets.env }}
        - name: {{ $name }}
          valueFrom: {secretKeyRef: {name: {{ $secret.name | quote }}, key: {{ $secret.key | quote }}}}
        {{- end }}
      {{- with .Values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: control, containerPort: {{ .Values.control.port }}}
        {{- range .Values.ports }}
        - {name: {{ .name | quote }}, containerPort: {{ .port }}}
        {{- end }}
      {{- with .Values.probes }}
      {{- /* It asks /live: a broker that is away does not restart a service that starts. */}}
      startupProbe:
        httpGet: {path: /live, port: control}
        periodSeconds: 5
        timeoutSeconds: {{ .timeoutSeconds }}
        failureThreshold: {{ divf .startupSeconds 5 | ceil | int | max 1 }}
      livenessProbe:
        httpGet: {path: /live, port: control}
        periodSeconds: {{ .periodSeconds }}
        timeoutSeconds: {{ .timeoutSeconds }}
        failureThreshold: {{ .failureThreshold }}
      readinessProbe:
        httpGet: {path: /ready, port: control}
        periodSeconds: {{ .periodSeconds }}
        timeoutSeconds: {{ .timeoutSeconds }}
        failureThreshold: {{ .failureThreshold }}
      {{- end }}
      resources:
        {{- $gpus := dict }}
        {{- if .Values.gpu.count }}
        {{- $gpus = dict "limits" (dict .Values.gpu.resource .Values.gpu.count) }}
        {{- end }}
        {{- toYaml (mergeOverwrite (deepCopy .Values.resources) $gpus) | nindent 8 }}
      {{- with .Values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        {{- if or .Values.service .Values.serviceVolume }}
        - {name: service, mountPath: {{ include "streamer.folder" . | quote }}, readOnly: true}
        {{- end }}
        {{- if .Values.secrets.files }}
        - {name: secrets, mountPath: {{ .Values.secrets.mountPath | quote }}, readOnly: true}
        {{- end }}
        {{- if or .Values.models.volume .Values.models.download.image }}
        - {name: models, mountPath: {{ .Values.models.mountPath | quote }}, readOnly: true}
        {{- end }}
        - {name: cache, mountPath: /var/cache/streamer}
        - {name: data, mountPath: {{ .Values.data.mountPath | quote }}}
        - {name: tmp, mountPath: /tmp}
        {{- with .Values.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if or .Values.service .Values.serviceVolume }}
      workingDir: {{ include "streamer.folder" . }}
      {{- end }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- if .Values.service }}
    - name: service
      configMap: {name: {{ include "streamer.name" . }}}
    {{- else if .Values.serviceVolume }}
    - name: service
      {{- toYaml .Values.serviceVolume | nindent 6 }}
    {{- end }}
    {{- with .Values.secrets.files }}
    - name: secrets
      projected:
        defaultMode: 0440
        sources:
          {{- range . }}
          - secret:
              {{- toYaml . | nindent 14 }}
          {{- end }}
    {{- end }}
    {{- if .Values.models.volume }}
    - name: models
      {{- toYaml .Values.models.volume | nindent 6 }}
    {{- else if .Values.models.download.image }}
    - name: models
      emptyDir: {}
    {{- end }}
    - name: cache
      {{- if .Values.cache.volume }}
      {{- toYaml .Values.cache.volume | nindent 6 }}
      {{- else }}
      emptyDir: {sizeLimit: {{ .Values.cache.sizeLimit }}}
      {{- end }}
    {{- if not (include "streamer.claims" .) }}
    - name: data
      {{- toYaml (.Values.data.volume | default (dict "emptyDir" dict)) | nindent 6 }}
    {{- end }}
    - name: tmp
      emptyDir: {sizeLimit: {{ .Values.tmp.sizeLimit }}}
    {{- with .Values.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
