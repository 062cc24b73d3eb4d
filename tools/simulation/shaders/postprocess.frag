#version 150
// Haze, sky, and a soft shoulder for bright colours.
uniform sampler2D map_accumulation; uniform sampler2D map_depth;
uniform float contextWidth; uniform float contextHeight; uniform float contextX; uniform float contextY;
uniform vec2 cameraClip; uniform float fogScale;
out vec4 stdout;
void main(void) {
  vec2 c = (gl_FragCoord.xy - vec2(contextX, contextY)) / vec2(contextWidth, contextHeight);
  vec3 colour = texture(map_accumulation, c).rgb;
  float depth = texture(map_depth, c).x;
  float far = cameraClip.y / (depth - cameraClip.x);
  colour = mix(colour, vec3(0.6, 0.65, 0.7), clamp(far * 0.006, 0.0, 1.5) * ${haze});
  if (depth > 0.9995) colour = c.y > 0.6 ? ${sky} : vec3(0.02, 0.022, 0.025);
  colour = colour / (0.75 + 0.35 * colour);
  stdout = vec4(clamp(colour, 0.0, 1.0), 0.0);
}
