{{/* The pod of a server: what is given is the chart's scope as `top`, the entry of `servers` as `server`, and whether it
     is one of several nodes other than the first, which answer no requests, as `follows`. */}}
{{- define "skiff.server" -}}
metadata:
  labels:
    app.kubernetes.io/name: {{ if .follows }}skiff-node{{ else }}skiff-server{{ end }}
    app.kubernetes.io/instance: {{ .top.Release.Name }}
    skiff/pool: {{ .server.name }}
spec:
  terminationGracePeriodSeconds: {{ .top.Values.terminationGracePeriodSeconds }}
  # Else a service that is called grpc would set GRPC_PORT here, which is read as --grpc-port.
  enableServiceLinks: false
  securityContext: {runAsNonRoot: true, runAsUser: 1000}
  containers:
    - name: server
      image: {{ .top.Values.image }}
      env: [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
      args:
        - serve
        - {{ .top.Values.model.path }}
        - --port=8000
        - --api-key-file=/keys/api
        - --router={{ .top.Release.Name }}-registration:{{ .top.Values.router.port }}
        - --router-key-file=/keys/admin
        - --router-advertise=$(POD_IP)
        - --no-webui
        {{- if .top.Values.splitwise }}
        - --splitwise-role={{ .server.role }}
        - --pd-comm-key-file=/keys/blocks
        {{- if eq .server.role "prefill" }}
        - --pd-comm-host=$(POD_IP)
        {{- end }}
        {{- end }}
        {{- if gt (int .server.nodes) 1 }}
        - --node-key-file=/keys/nodes
        {{- end }}
        {{- range .server.args }}
        - {{ . | quote }}
        {{- end }}
      {{- if .follows }}
      # It ends when the first node does, which finishes its replies before.
      lifecycle: {preStop: {exec: {command: [sleep, {{ .top.Values.terminationGracePeriodSeconds | quote }}]}}}
      {{- else }}
      ports: [{name: http, containerPort: 8000}]
      livenessProbe: {httpGet: {path: /live, port: http}}
      readinessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 2}
      {{- end }}
      resources: {{- toJson .server.resources | nindent 8 }}
      volumeMounts:
        - {name: keys, mountPath: /keys, readOnly: true}
        - {name: models, mountPath: /models, readOnly: true}
  volumes:
    - {name: keys, secret: {secretName: {{ .top.Values.keys }}}}
    - {name: models, persistentVolumeClaim: {claimName: {{ .top.Values.model.claim }}, readOnly: true}}
{{- end }}
